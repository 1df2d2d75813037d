package record

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"time"

	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// The first byte of a client's record.
const (
	clientIPv6   = 0x01 // addresses have 16 bytes
	clientRanged = 0x02
	clientMark   = 0x04
	clientForms  = clientIPv6 | clientRanged | clientMark
)

const clientHead = 1 + 1 + 4 // form, protocol, age in seconds: clients are remembered for days

// MaxClientLength is the length of the longest record of a client.
const MaxClientLength = clientHead + 16 + 2*(16+2) + markLength

// AppendClient appends the record of a client: 22 bytes for IPv4, 58 for IPv6, 4 more with a mark.
func AppendClient(b []byte, c *report.ClientCopy) []byte {
	form := byte(0)
	is6 := isClientIPv6(c)
	if is6 {
		form |= clientIPv6
	}
	if c.Ranged {
		form |= clientRanged
	}
	if c.Mark != 0 {
		form |= clientMark
	}
	b = append(b, form, byte(c.Protocol))
	b = binary.BigEndian.AppendUint32(b, uint32(min((max(c.Idle, 0)+time.Second-1)/time.Second, math.MaxUint32)))
	b = appendAddress(b, netip.AddrPortFrom(c.Client, 0), is6)
	b = b[:len(b)-2] // it has no port
	b = appendAddress(b, c.VIP, is6)
	b = appendAddress(b, c.Endpoint, is6)
	if c.Mark != 0 {
		b = binary.BigEndian.AppendUint32(b, c.Mark)
	}
	return b
}

// DecodeClient reads the first record of b, and returns the rest.
func DecodeClient(b []byte) (c report.ClientCopy, rest []byte, err error) {
	if len(b) < clientHead {
		return c, b, ErrShort
	}
	form, size, length := b[0], 4, clientHead
	if form&^clientForms != 0 {
		return c, b, fmt.Errorf("%w: form %#x of a client", ErrMalformed, form)
	}
	if form&clientIPv6 != 0 {
		size = 16
	}
	if length += size + 2*(size+2); form&clientMark != 0 {
		length += markLength
	}
	if len(b) < length {
		return c, b, ErrShort
	}
	c.Protocol, c.Ranged, c.Idle = lb.Protocol(b[1]), form&clientRanged != 0, time.Duration(binary.BigEndian.Uint32(b[2:]))*time.Second
	client, _ := netip.AddrFromSlice(b[clientHead : clientHead+size])
	c.Client = client.Unmap()
	c.VIP, rest = readAddress(b[clientHead+size:], form&clientIPv6 != 0)
	c.Endpoint, rest = readAddress(rest, form&clientIPv6 != 0)
	if form&clientMark != 0 {
		c.Mark, rest = binary.BigEndian.Uint32(rest), rest[markLength:]
	}
	if form&clientIPv6 != 0 && !isClientIPv6(&c) || form&clientMark != 0 && c.Mark == 0 {
		return c, b, fmt.Errorf("%w: form %#x of client %s", ErrMalformed, form, c.Client)
	}
	return c, rest, nil
}

func isClientIPv6(c *report.ClientCopy) bool {
	return c.Client.Is6() || c.VIP.Addr().Is6() || c.Endpoint.Addr().Is6()
}

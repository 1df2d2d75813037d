// Package record encodes connections for other nodes, in 28 to 94 bytes each.
//
// A record holds the whole state of a connection, so records of one connection may be lost,
// repeated, and arrive in any order (Merge). It names services and endpoints by address and holds
// ages, as row numbers and clocks only mean something on one node.
package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"time"

	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// Flags in the first byte of a record.
const (
	formIPv6   = 0x01 // addresses have 16 bytes
	formTCP    = 0x02 // TCP, with sequence numbers; otherwise SCTP if flagSCTP is set, or UDP
	formMark   = 0x04 // with the mark of its service
	formSNAT   = 0x08 // traits and hop, of bpf/abi.h
	formOneWay = 0x10
	formFamily = 0x20
	formIPIP   = 0x40
	formGUE    = 0x80
)

// The traits and hop flags of bpf/abi.h that nodes exchange.
const (
	traitSNAT   = 0x01
	traitOneWay = 0x04
	hopFamily   = 0x20
	hopIPIP     = 0x40
	hopGUE      = 0x80
	hopProxy    = 0x10
)

// flagProxy is hopProxy in the flags of a TCP record. In bpf/abi.h this bit marks entries of
// replies, which records do not need: a record describes both directions.
const flagProxy = 0x01

// flagSCTP is the same bit in other records: the record is of SCTP, with verification tags.
const flagSCTP = flagProxy

// bitPairs maps bits of the form to traits and hop flags.
var bitPairs = [...]struct{ form, trait, hop byte }{
	{form: formSNAT, trait: traitSNAT}, {form: formOneWay, trait: traitOneWay},
	{form: formFamily, hop: hopFamily}, {form: formIPIP, hop: hopIPIP}, {form: formGUE, hop: hopGUE},
}

// The lengths of parts of a record.
const (
	headLength    = 4 // form, flags, generation, age
	addressCount  = 4
	numbersLength = 4 + 4 + 3 + 3
	tagsLength    = 4 + 4
	markLength    = 4
	// MaxLength is the length of the longest record.
	MaxLength = headLength + addressCount*(16+2) + numbersLength + markLength
)

// The errors of Decode.
var (
	ErrShort     = errors.New("the record is cut off")
	ErrMalformed = errors.New("the record is malformed")
)

// Append appends the record of a connection.
func Append(b []byte, c *report.ConnectionCopy) []byte {
	is6 := isIPv6(c)
	b = appendHead(b, c, is6)
	for _, a := range [addressCount]netip.AddrPort{c.Client, c.VIP, c.Source, c.Endpoint} {
		b = appendAddress(b, a, is6)
	}
	if c.Protocol == lb.TCP {
		n := &c.Numbers
		b = binary.BigEndian.AppendUint32(b, n.Sent)
		b = binary.BigEndian.AppendUint32(b, n.ReplySent)
		b = appendAhead(b, n.ReplyAcked-n.Sent)
		b = appendAhead(b, n.Acked-n.ReplySent)
	}
	if c.Protocol == lb.SCTP {
		b = binary.BigEndian.AppendUint32(b, c.Numbers.Acked)
		b = binary.BigEndian.AppendUint32(b, c.Numbers.ReplyAcked)
	}
	if c.Mark != 0 {
		b = binary.BigEndian.AppendUint32(b, c.Mark)
	}
	return b
}

// appendHead appends the form, flags, generation and age of a record.
func appendHead(b []byte, c *report.ConnectionCopy, is6 bool) []byte {
	form := byte(0)
	if is6 {
		form |= formIPv6
	}
	if c.Protocol == lb.TCP {
		form |= formTCP
	}
	if c.Mark != 0 {
		form |= formMark
	}
	for _, p := range bitPairs {
		if c.Traits&p.trait|c.Hop&p.hop != 0 {
			form |= p.form
		}
	}
	flags := c.Flags
	if c.Hop&hopProxy != 0 {
		flags |= flagProxy
	}
	if c.Protocol == lb.SCTP {
		flags |= flagSCTP
	}
	return append(b, form, flags, c.Generation, encodeAge(c.Idle))
}

func isIPv6(c *report.ConnectionCopy) bool {
	return c.Client.Addr().Is6() || c.VIP.Addr().Is6() || c.Source.Addr().Is6() || c.Endpoint.Addr().Is6()
}

func appendAddress(b []byte, a netip.AddrPort, is6 bool) []byte {
	if is6 {
		as := a.Addr().As16()
		b = append(b, as[:]...)
	} else {
		as := a.Addr().As4()
		b = append(b, as[:]...)
	}
	return binary.BigEndian.AppendUint16(b, a.Port())
}

// Decode reads the first record of b, and returns the rest. It accepts only what Append makes.
func Decode(b []byte) (c report.ConnectionCopy, rest []byte, err error) {
	form, sctp, rest, err := decodeHead(&c, b)
	if err == nil && len(b) < lengthOf(form, sctp) {
		err = ErrShort
	}
	if err != nil {
		return c, b, err
	}
	for _, a := range [addressCount]*netip.AddrPort{&c.Client, &c.VIP, &c.Source, &c.Endpoint} {
		*a, rest = readAddress(rest, form&formIPv6 != 0)
	}
	if form&formTCP != 0 {
		n := &c.Numbers
		n.Sent, n.ReplySent = binary.BigEndian.Uint32(rest), binary.BigEndian.Uint32(rest[4:])
		n.ReplyAcked, n.Acked = n.Sent+readAhead(rest[8:]), n.ReplySent+readAhead(rest[11:])
		rest = rest[numbersLength:]
	}
	if sctp {
		c.Numbers.Acked, c.Numbers.ReplyAcked = binary.BigEndian.Uint32(rest), binary.BigEndian.Uint32(rest[4:])
		rest = rest[tagsLength:]
	}
	if form&formMark != 0 {
		c.Mark = binary.BigEndian.Uint32(rest)
		rest = rest[markLength:]
	}
	if err := check(&c, form); err != nil {
		return report.ConnectionCopy{}, b, err
	}
	return c, rest, nil
}

// decodeHead reads the form, flags, generation and age of a record, and returns what follows.
func decodeHead(c *report.ConnectionCopy, b []byte) (form byte, sctp bool, rest []byte, err error) {
	if len(b) < headLength {
		return 0, false, b, ErrShort
	}
	form = b[0]
	sctp = form&formTCP == 0 && b[1]&flagSCTP != 0
	c.Protocol, c.Flags, c.Generation, c.Idle = lb.UDP, b[1]&^flagProxy, b[2], decodeAge(b[3])
	switch {
	case form&formTCP != 0:
		c.Protocol = lb.TCP
	case sctp:
		c.Protocol = lb.SCTP
	}
	if !sctp && b[1]&flagProxy != 0 {
		c.Hop = hopProxy
	}
	for _, p := range bitPairs {
		if form&p.form != 0 {
			c.Traits |= p.trait
			c.Hop |= p.hop
		}
	}
	return form, sctp, b[headLength:], nil
}

// check returns an error if Append cannot have made a decoded record.
func check(c *report.ConnectionCopy, form byte) error {
	if form&formIPv6 != 0 && !isIPv6(c) || form&formMark != 0 && c.Mark == 0 || !isPlausible(c) {
		return fmt.Errorf("%w: form %#x, %s > %s", ErrMalformed, form, c.Client, c.VIP)
	}
	return nil
}

// lengthOf returns the length of a record with a form; sctp: the record is of SCTP.
func lengthOf(form byte, sctp bool) int {
	n := headLength + addressCount*(4+2)
	if form&formIPv6 != 0 {
		n = headLength + addressCount*(16+2)
	}
	if form&formTCP != 0 {
		n += numbersLength
	}
	if sctp {
		n += tagsLength
	}
	if form&formMark != 0 {
		n += markLength
	}
	return n
}

// isPlausible reports whether each address, and the combination of flags, can occur in a
// connection.
func isPlausible(c *report.ConnectionCopy) bool {
	for _, a := range [addressCount]netip.AddrPort{c.Client, c.VIP, c.Source, c.Endpoint} {
		if a.Addr().IsUnspecified() || a.Addr().IsMulticast() {
			return false
		}
	}
	return c.Hop&hopProxy == 0 || c.Protocol == lb.TCP && c.Traits&traitOneWay == 0
}

func readAddress(b []byte, is6 bool) (netip.AddrPort, []byte) {
	size := 4
	if is6 {
		size = 16
	}
	a, _ := netip.AddrFromSlice(b[:size])
	return netip.AddrPortFrom(a.Unmap(), binary.BigEndian.Uint16(b[size:])), b[size+2:]
}

// ahead is a signed number of 24 bits: how far one TCP number is ahead of another. Larger distances
// are saturated: the packet path treats more than 4 MiB as unknown.
const (
	maxAhead = 1<<23 - 1
	minAhead = -1 << 23
)

func clampAhead(difference uint32) int32 { return min(max(int32(difference), minAhead), maxAhead) }

func appendAhead(b []byte, difference uint32) []byte {
	d := clampAhead(difference)
	return append(b, byte(d>>16), byte(d>>8), byte(d))
}

func readAhead(b []byte) uint32 {
	return uint32(int32(uint32(b[0])<<24|uint32(b[1])<<16|uint32(b[2])<<8) >> 8) // with its sign
}

// ageUnit is the unit of ages: a byte holds 4 bits, shifted to the left by up to 15.
const (
	ageUnit     = 16 * time.Millisecond
	ageBits     = 4
	ageMantissa = 1<<ageBits - 1
)

// encodeAge rounds up: a connection does not become younger, however often it is copied.
func encodeAge(d time.Duration) byte {
	units := uint64(max(d, 0)+ageUnit-1) / uint64(ageUnit)
	shift := max(bits.Len64(units)-ageBits, 0)
	mantissa := (units + 1<<shift - 1) >> shift
	if mantissa > ageMantissa {
		mantissa, shift = (mantissa+1)/2, shift+1
	}
	if shift > ageMantissa {
		return 0xff
	}
	return byte(shift<<ageBits) | byte(mantissa)
}

func decodeAge(b byte) time.Duration {
	return time.Duration(b&ageMantissa) << (b >> ageBits) * ageUnit
}

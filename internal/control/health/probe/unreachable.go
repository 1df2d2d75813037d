package probe

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// errNoSCTP is the result of an ICMP error: nothing on the host receives SCTP.
var errNoSCTP = errors.New("the host has no SCTP (ICMP protocol unreachable)")

// ICMP errors quote the refused packet behind a header of 8 bytes.
const (
	icmpHeader = 8

	protocolUnreachable = 2 // code of IPv4's destination unreachable
	unknownNextHeader   = 1 // code of IPv6's parameter problem
)

// openRefusals opens a socket for ICMP errors about a protocol that the host lacks, in packets from
// a port. A socket of its own: errors at the sending socket would fail the INITs of others.
func openRefusals(six bool, port uint16) (rawSocket, error) {
	protocol, quoted := "icmp", icmpHeader+ipv4.HeaderLen
	if six {
		protocol, quoted = "ipv6-icmp", icmpHeader+ipv6.HeaderLen
	}
	raw, err := openRaw(six, protocol, nil)
	if err != nil {
		return rawSocket{}, err
	}
	if err := errors.Join(raw.keepICMP(ipv4.ICMPTypeDestinationUnreachable, ipv6.ICMPTypeParameterProblem), raw.keep(uint32(quoted), port)); err != nil {
		raw.Close()
		return rawSocket{}, err
	}
	return raw, nil
}

// deliverRefusal passes an ICMP error to the INIT that it quotes. The quoted tag, which is secret,
// proves that the sender has received the INIT.
func (s *associator) deliverRefusal(_ netip.Addr, p []byte, received time.Time) {
	code, quoted := byte(protocolUnreachable), icmpHeader+ipv4.HeaderLen
	if s.v6 != nil {
		code, quoted = unknownNextHeader, icmpHeader+ipv6.HeaderLen
	}
	const end = sctpHeader + sctpChunk + 4 // of the tag
	if len(p) < quoted+end || p[1] != code {
		return
	}
	tag := binary.BigEndian.Uint32(p[quoted+end-4:])
	s.mu.Lock()
	w := s.waiting[tag]
	s.mu.Unlock()
	if w != nil {
		w.deliver(initiated{at: received, err: errNoSCTP})
	}
}

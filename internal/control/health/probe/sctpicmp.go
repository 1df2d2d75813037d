package probe

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// errNoSCTP is the result of an ICMP error that reports that the host does not support SCTP.
var errNoSCTP = errors.New("the host has no SCTP (ICMP protocol unreachable)")

// ICMP errors have a header of 8 bytes, and then quote the refused packet.
const (
	icmpHeader = 8

	protocolUnreachable = 2 // code of IPv4's destination unreachable
	unknownNextHeader   = 1 // code of IPv6's parameter problem
)

// openRefusals opens a socket that receives the ICMP errors of hosts without SCTP, about packets
// from a port. It is not the sending socket: there, an error would make later INITs to other hosts
// fail.
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

// deliverRefusal passes an ICMP error to the INIT that it quotes. The tag of the INIT is secret, so
// a quote of it proves that the sender of the error has received the INIT.
func (s *associator) deliverRefusal(_ netip.Addr, p []byte, received time.Time) {
	code, quoted := byte(protocolUnreachable), icmpHeader+ipv4.HeaderLen
	if s.v6 != nil {
		code, quoted = unknownNextHeader, icmpHeader+ipv6.HeaderLen
	}
	const end = sctpHeader + sctpChunk + 4 // offset of the end of the tag
	if len(p) < quoted+end || p[1] != code {
		return
	}
	tag := binary.BigEndian.Uint32(p[quoted+end-4:])
	s.mu.Lock()
	w := s.waiting[tag]
	s.mu.Unlock()
	if w != nil {
		w.deliver(initAnswer{at: received, err: errNoSCTP})
	}
}

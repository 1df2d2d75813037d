package model

import (
	"net/netip"
	"time"

	"loxilb/internal/lb"
	"loxilb/internal/pkt"
)

// The rules of challenges: a SYN of a client that is not known goes back as a SYN+ACK of something that the client has not
// sent. The RST with that number makes the client known, as does a handshake that the load balancer sees both sides of.

const knownTime = 10 * time.Minute

// client is what is known of an address: of IPv6 its network.
func clientOf(a netip.Addr) netip.Prefix {
	bits := 32
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits) // both lengths are right for their address
	return p
}

func (m *Model) know(a netip.Addr) { m.known[clientOf(a)] = m.now + knownTime }

// challenges reports whether the packet is challenged, and notes by which number.
func (m *Model) challenges(svc *service, key tuple, p *pkt.Packet) bool {
	until, known := m.known[clientOf(key.src.Addr())]
	if svc.SynProtect != lb.SynProtectAlways || key.proto != lb.TCP || !isSYN(p) || known && m.now <= until || len(svc.turns) == 0 {
		return false
	}
	m.numbers[key] = max(m.number, 1)
	return true
}

// answersChallenge reports whether the packet is the answer to a challenge, and takes it.
func (m *Model) answersChallenge(svc *service, key tuple, p *pkt.Packet) bool {
	number, asked := m.numbers[key]
	if !asked || svc.SynProtect == lb.SynProtectOff || p.Num(pkt.Flags)&pkt.FlagRST == 0 || p.Num(pkt.TTL) <= 1 ||
		uint32(p.Num(pkt.Seq))<<1 != number<<1 {
		return false
	}
	m.know(key.src.Addr())
	return true
}

// challengeOf is what a challenge changes of the SYN that it is about.
func challengeOf(p *pkt.Packet, number uint64) *pkt.Packet {
	return pkt.New(pkt.TCP).SetSrc(p.DstAddr()).SetDst(p.SrcAddr()).SetNum(pkt.Flags, pkt.FlagSYN|pkt.FlagACK).
		SetNum(pkt.Ack, number).SetNum(pkt.TTL, 64)
}

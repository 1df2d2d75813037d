package model

import (
	"net/netip"
	"time"

	"loxilb/internal/lb"
	"loxilb/internal/pkt"
)

// The rules of challenges. The program answers the SYN of an unknown client by a SYN+ACK that
// acknowledges a number that the client has not sent. A RST with this number makes the client
// known. So does a handshake, if its packets in both directions pass the load balancer.

const knownTime = 10 * time.Minute

// answeredTime is how long a client of UDP or ICMP stays known after it has sent a packet after an
// answer.
const answeredTime = knownTime / 4

// clientOf returns the prefix that counts as one client: an IPv4 address, or an IPv6 network.
func clientOf(a netip.Addr) netip.Prefix {
	bits := 32
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits) // both lengths are valid for their address
	return p
}

func (m *Model) markKnown(a netip.Addr) { m.known[clientOf(a)] = m.now + knownTime }

// isKnown reports whether the source of a tuple is a known client.
func (m *Model) isKnown(key tuple) bool {
	c := clientOf(key.src.Addr())
	until, known := m.known[c]
	if known && m.now <= until {
		return true
	}
	until, known = m.answered[c]
	return known && m.now <= until && key.proto != lb.TCP
}

// challenge answers a SYN by a challenge, and records the number that the RST must have.
func (m *Model) challenge(key tuple) Verdict {
	m.numbers[key] = max(m.number, 1)
	return Verdict{Name: "out", Reason: "challenged"}
}

// protect decides whether a packet may open a connection (ok). If not, because of the limit of
// half-open connections or a challenge, it returns the verdict. It records the number of a
// challenge.
func (m *Model) protect(svc *service, key tuple, p *pkt.Packet) (v Verdict, ok bool) {
	syn := key.proto == lb.TCP && isSYN(p)
	asked := svc.SynProtect == lb.SynProtectAlways || svc.SynProtect != lb.SynProtectOff && m.now < svc.short
	switch {
	case !m.halfOpenExceeds(svc, key.proto, 1) && (!syn || !asked):
		return v, true
	case m.isKnown(key) && m.halfOpenExceeds(svc, key.proto, 1.5):
		return drop("half-open-full"), false
	case m.isKnown(key):
		return v, true
	case !syn:
		return drop("unknown-source"), false
	case svc.SynProtect == lb.SynProtectOff:
		return drop("half-open-full"), false
	}
	return m.challenge(key), false
}

// beforeLookup returns the verdict on a SYN or RST during a flood, before the connection is looked
// up. ok reports whether the verdict is final.
func (m *Model) beforeLookup(key tuple, p *pkt.Packet) (v Verdict, ok bool) {
	if m.answersChallenge(key, p) {
		return drop("challenge-answered"), true
	}
	svc := m.find(key)
	if !isSYN(p) || svc == nil || len(svc.round) == 0 || svc.denies(key.src.Addr()) || !svc.allows(key.src.Addr()) {
		return v, false
	}
	v, ok = m.protect(svc, key, p)
	return v, !ok && v.Reason == "challenged"
}

// answersChallenge reports whether the packet is the answer to a challenge. If so, the client is
// known from now on.
func (m *Model) answersChallenge(key tuple, p *pkt.Packet) bool {
	number, asked := m.numbers[key]
	if !asked || p.Num(pkt.Flags)&pkt.FlagRST == 0 || p.Num(pkt.TTL) <= 1 ||
		uint32(p.Num(pkt.Seq))<<1 != number<<1 {
		return false
	}
	m.markKnown(key.src.Addr())
	return true
}

// challengeOf returns the challenge of a SYN.
func challengeOf(p *pkt.Packet, number uint64) *pkt.Packet {
	return pkt.New(pkt.TCP).SetSrc(p.DstAddr()).SetDst(p.SrcAddr()).SetNum(pkt.Flags, pkt.FlagSYN|pkt.FlagACK).
		SetNum(pkt.Ack, number).SetNum(pkt.TTL, 64)
}

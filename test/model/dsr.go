package model

import (
	"loxilb/internal/lb"
	"loxilb/internal/pkt"
)

// The rules of mode dsr: packets leave as they came, the endpoint answers past the load balancer,
// and so all that is known of a connection is what its client sends. Answers that come here all the
// same, as this is the endpoint's router, continue as they are.

// directAnswer returns what becomes of a packet of no connection and no service: it may be such an
// answer.
func (m *Model) directAnswer(key tuple, p *pkt.Packet, length uint64) Verdict {
	e, ok := m.table[tuple{key.proto, key.dst, key.src}]
	if !ok || !e.conn.oneWay || m.dead(e.conn) {
		return Verdict{Name: "pass"}
	}
	if !e.conn.closed() {
		e.conn.sides[fromClient].heard = m.now
	}
	if p.Num(pkt.TTL) <= 1 {
		return answered(p, "ttl-expired")
	}
	out := &e.conn.endpoint.stats.Out
	out.Packets, out.Bytes = out.Packets+1, out.Bytes+length
	return Verdict{Name: "out", Src: key.src, Dst: key.dst, Hop: key.dst.Addr()}
}

// resumes reports whether a packet from the middle of a connection that nobody knows has it made
// again.
func (s *service) resumes(p *pkt.Packet) bool {
	flags := p.Num(pkt.Flags) & (pkt.FlagSYN | pkt.FlagACK | pkt.FlagRST)
	return s.Mode == lb.ModeDSR && s.Algorithm == lb.Hash && flags == pkt.FlagACK
}

// behind reports whether a number lies before another one, on the circle that they are on.
func behind(a, b uint32) bool { return a-b >= 1<<31 }

// reopens reports whether a SYN of the client ends the connection and opens another.
func (c *connection) reopens(p *pkt.Packet) bool {
	if c.oneWay {
		return c.sides[fromClient].reset || c.sides[fromClient].fin && !behind(uint32(p.Num(pkt.Seq)), c.sides[fromClient].end)
	}
	return c.closed()
}

// segmentOneWay does to a connection what a TCP segment of its client does, and reports whether it
// counts as a sign of life.
func (c *connection) segmentOneWay(p *pkt.Packet) bool {
	own, flags, seq := &c.sides[fromClient], p.Num(pkt.Flags), uint32(p.Num(pkt.Seq))
	switch {
	case isSYN(p) && c.replied:
		return false // the endpoint answers it with a challenge
	case isSYN(p):
		own.end = seqEnd(p)
	case flags&pkt.FlagRST != 0:
		if seq != own.end && seq+1 != own.end {
			return false
		}
		own.reset = true
	case flags&(pkt.FlagSYN|pkt.FlagACK) == pkt.FlagACK:
		c.acknowledgeOneWay(p)
	}
	return true
}

// acknowledgeOneWay follows an ACK of the client: it takes two of them, the second one continuing
// from the first, for the connection to be open.
func (c *connection) acknowledgeOneWay(p *pkt.Packet) {
	own, fin := &c.sides[fromClient], p.Num(pkt.Flags)&pkt.FlagFIN != 0
	end, ack := seqEnd(p), uint32(p.Num(pkt.Ack))
	switch {
	case !c.replied && near(end, own.end):
		c.replied, own.acked = true, ack
	case c.replied && (own.continues(end, ack) || fin && end-own.end < window && near(ack, own.acked)):
		c.open = true
	default:
		return
	}
	if end != own.end || ack != own.acked {
		own.reset = false
	}
	own.fin = own.fin || fin
	if behind(own.end, end) {
		own.end = end
	}
	if behind(own.acked, ack) {
		own.acked = ack
	}
}

// near reports whether two numbers are within a window of each other.
func near(a, b uint32) bool { return a-b < window || b-a <= window }

package model

import (
	"loxilb/internal/lb"
	"loxilb/internal/pkt"
)

// The rules of mode dsr. Packets leave unchanged and the endpoint answers the client directly, so
// only packets of the client pass the load balancer. If the load balancer is the endpoint's router,
// it forwards the answers unchanged.

// directAnswer returns the verdict on a packet of no connection and no service, which may be a
// direct answer.
func (m *Model) directAnswer(key tuple, p *pkt.Packet, length uint64) Verdict {
	e, ok := m.table[tuple{key.proto, key.dst, key.src}]
	if !ok || !e.conn.oneWay || m.isExpired(e.conn) {
		return Verdict{Name: "pass"}
	}
	if !e.conn.closed() {
		e.conn.sides[fromClient].lastSeen = m.now
	}
	if p.Num(pkt.TTL) <= 1 {
		return answered(p, "ttl-expired")
	}
	out := &e.conn.endpoint.stats.Out
	out.Packets, out.Bytes = out.Packets+1, out.Bytes+length
	return Verdict{Name: "out", Src: key.src, Dst: key.dst, Hop: key.dst.Addr()}
}

// canResume reports whether a packet from the middle of an unknown connection creates the
// connection again.
func (s *service) canResume(p *pkt.Packet) bool {
	flags := p.Num(pkt.Flags) & (pkt.FlagSYN | pkt.FlagACK | pkt.FlagRST)
	return s.Mode == lb.ModeDSR && s.Algorithm == lb.Hash && flags == pkt.FlagACK
}

// isBefore reports whether a sequence number is before another one, modulo 2^32.
func isBefore(a, b uint32) bool { return a-b >= 1<<31 }

// reopens reports whether a SYN of the client ends the connection and opens a new one.
func (c *connection) reopens(p *pkt.Packet) bool {
	if c.oneWay {
		return c.sides[fromClient].reset || c.sides[fromClient].fin && !isBefore(uint32(p.Num(pkt.Seq)), c.sides[fromClient].end)
	}
	return c.closed()
}

// segmentOneWay updates a connection by a TCP segment of its client, and reports whether the
// segment is a sign of life.
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

// acknowledgeOneWay updates a connection by an ACK of the client. The second ACK opens the
// connection if its numbers continue those of the first.
func (c *connection) acknowledgeOneWay(p *pkt.Packet) {
	own, fin := &c.sides[fromClient], p.Num(pkt.Flags)&pkt.FlagFIN != 0
	end, ack := seqEnd(p), uint32(p.Num(pkt.Ack))
	switch {
	case !c.replied && withinWindow(end, own.end):
		c.replied, own.acked = true, ack
	case c.replied && (own.continues(end, ack) || fin && end-own.end < window && withinWindow(ack, own.acked)):
		c.open = true
	default:
		return
	}
	if end != own.end || ack != own.acked {
		own.reset = false
	}
	own.fin = own.fin || fin
	if isBefore(own.end, end) {
		own.end = end
	}
	if isBefore(own.acked, ack) {
		own.acked = ack
	}
}

// withinWindow reports whether two numbers are within a window of each other.
func withinWindow(a, b uint32) bool { return a-b < window || b-a <= window }

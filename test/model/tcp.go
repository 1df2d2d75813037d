package model

import (
	"cmp"
	"time"

	"loxilb/internal/lb"
	"loxilb/internal/pkt"
)

// window is how far ahead of the highest seen number a number is accepted.
const window = 1 << 22

func isSYN(p *pkt.Packet) bool {
	return p.Num(pkt.Flags)&(pkt.FlagSYN|pkt.FlagACK|pkt.FlagRST|pkt.FlagFIN) == pkt.FlagSYN
}

// seqEnd returns the sequence number after the segment.
func seqEnd(p *pkt.Packet) uint32 {
	end := uint32(p.Num(pkt.Seq)) + uint32(p.Num(pkt.Len))
	for _, f := range []uint64{pkt.FlagSYN, pkt.FlagFIN} {
		if p.Num(pkt.Flags)&f != 0 {
			end++
		}
	}
	return end
}

func (c *connection) closed() bool {
	return c.sides[0].reset || c.sides[1].reset || c.sides[0].finAcked && c.sides[1].finAcked
}

// state returns the state as listings show it.
func (c *connection) state() string {
	fins := 0
	for _, s := range c.sides {
		if s.fin {
			fins++
		}
	}
	switch {
	case c.proto == lb.UDP && c.replied:
		return "udp-est"
	case c.proto == lb.UDP:
		return "udp-uni"
	case c.proto != lb.TCP && c.replied:
		return "bidir"
	case c.proto != lb.TCP:
		return "req-sent"
	case c.closed():
		return "closed"
	case fins == 2:
		return "closed-wait"
	case fins == 1:
		return "fini"
	case c.open:
		return "est"
	case c.replied:
		return "sync-ack"
	}
	return "sync-sent"
}

// begin updates a new connection by its first packet: a SYN, or a later segment.
func (c *connection) begin(p *pkt.Packet) {
	c.sides[fromClient].end = seqEnd(p)
	c.sides[fromEndpoint].acked = uint32(p.Num(pkt.Seq)) + 1
	if c.oneWay {
		c.sides[fromClient].acked = uint32(p.Num(pkt.Ack))
		c.replied = c.proto == lb.TCP && !isSYN(p)
	}
}

// continues reports whether a segment may be the next one of a side. Only the sender knows these
// numbers.
func (s side) continues(end, ack uint32) bool {
	sent, acked := end-s.end, ack-s.acked
	return sent < window && acked < window || sent == 0 && acked < 1<<31 || acked == 0 && sent < 1<<31
}

// inFlight reports whether a number has been sent and not acknowledged yet.
func inFlight(number uint32, sender, receiver side) bool {
	flight := sender.end - receiver.acked
	return flight < window && number-receiver.acked <= flight
}

// segment updates the connection by a TCP segment.
func (c *connection) segment(p *pkt.Packet, dir direction, now time.Duration) {
	own, flags := &c.sides[dir], p.Num(pkt.Flags)
	switch {
	case c.oneWay:
		if c.segmentOneWay(p) {
			own.lastSeen = now
		}
		return
	case flags&pkt.FlagRST != 0:
		if c.believesReset(p, dir) {
			own.lastSeen, own.reset = now, true
		}
		return
	case isSYN(p) && dir == fromClient && c.replied:
		c.dialAgain(p) // the endpoint answers it with a challenge, or accepts it
		return
	}
	if flags&pkt.FlagSYN != 0 && dir == fromEndpoint {
		if c.answer(p) {
			own.lastSeen = now
		}
		return
	}
	own.lastSeen = now
	switch {
	case isSYN(p) && dir == fromClient:
		c.dialAgain(p)
	case flags&pkt.FlagSYN != 0:
	case !c.open:
		c.handshake(p, dir)
	case flags&pkt.FlagACK != 0:
		c.acknowledge(p, dir)
	}
}

// dialAgain follows a SYN of the client in an existing connection: the first one again, or
// another one.
func (c *connection) dialAgain(p *pkt.Packet) {
	ack := uint32(p.Num(pkt.Seq)) + 1
	if seqEnd(p) != c.sides[fromClient].end && ack != c.sides[fromEndpoint].acked {
		c.redial, c.redialled = ack, true
	}
}

// acceptsRedial reports whether the endpoint acknowledges another SYN than the first: 6 bits of the
// number are kept, and 0 stands for none.
func (c *connection) acceptsRedial(p *pkt.Packet) bool {
	return p.Num(pkt.Flags)&pkt.FlagACK != 0 && c.redialled && kept(c.redial) == kept(uint32(p.Num(pkt.Ack)))
}

func kept(ack uint32) uint32 { return cmp.Or(ack&63, 63) }

// answer returns a SYN of the endpoint. It reports whether it is a sign of life: not if it comes
// again.
func (c *connection) answer(p *pkt.Packet) (alive bool) {
	client, own := &c.sides[fromClient], &c.sides[fromEndpoint]
	seq, ack := uint32(p.Num(pkt.Seq)), uint32(p.Num(pkt.Ack))
	switch {
	case !c.open && (p.Num(pkt.Flags)&pkt.FlagACK == 0 || inFlight(ack, *client, *own)):
		alive = !c.replied
		c.replied = true
		c.beginAnswer(p, seq+1)
	case c.acceptsRedial(p) && seqEnd(p) != own.end: // begins again
		if c.replied {
			c.endpoint.stats.Connections++
		}
		c.replied, c.open, c.redialled = true, false, false
		client.fin, client.finAcked, client.reset = false, false, false
		own.fin, own.finAcked, own.reset = false, false, false
		client.end, client.acked = ack, seq+1
		own.end, own.acked = seqEnd(p), ack
		alive = true
	}
	return alive
}

// beginAnswer notes the endpoint's numbers before the client has acknowledged any.
func (c *connection) beginAnswer(p *pkt.Packet, first uint32) {
	client, own := &c.sides[fromClient], &c.sides[fromEndpoint]
	if !inFlight(first, *own, *client) {
		client.acked, own.end = first, seqEnd(p)
	} else if end := seqEnd(p); end-own.end < window {
		own.end = end
	}
	if ack := uint32(p.Num(pkt.Ack)); p.Num(pkt.Flags)&pkt.FlagACK != 0 && inFlight(ack, *client, *own) {
		own.acked = ack
	}
}

// handshake updates the connection by an ACK before the handshake is complete. A client's ACK
// completes the handshake if it acknowledges a number that the endpoint has sent.
func (c *connection) handshake(p *pkt.Packet, dir direction) {
	own, ack := &c.sides[dir], uint32(p.Num(pkt.Ack))
	if p.Num(pkt.Flags)&pkt.FlagACK == 0 || !c.replied {
		return
	}
	if dir == fromEndpoint {
		c.beginAnswer(p, uint32(p.Num(pkt.Seq)))
	} else if inFlight(ack, c.sides[fromEndpoint], *own) {
		c.open, own.end, own.acked = true, seqEnd(p), ack
	} else {
		return
	}
	c.acknowledge(p, dir)
}

// acknowledge updates the connection by a segment with ACK.
func (c *connection) acknowledge(p *pkt.Packet, dir direction) {
	own, other, finBefore := &c.sides[dir], &c.sides[1-dir], c.sides[1-dir].fin
	end, ack := seqEnd(p), uint32(p.Num(pkt.Ack))
	next := own.continues(end, ack)
	if next && (end != own.end || ack != own.acked) {
		own.reset = false // a sender that continues has not sent the RST
	}
	if p.Num(pkt.Flags)&pkt.FlagFIN != 0 && (next || end-own.end < 1<<31 && end-other.acked < window && other.end-ack < window) {
		own.fin, own.end = true, end
	}
	if next {
		own.end, own.acked = end, ack
	}
	if finBefore && ack == other.end {
		other.finAcked = true
	}
}

// believesReset reports whether the receiver of a RST would act on it.
func (c *connection) believesReset(p *pkt.Packet, dir direction) bool {
	own, other, seq := c.sides[dir], c.sides[1-dir], uint32(p.Num(pkt.Seq))
	switch {
	case c.replied:
		return inFlight(seq, own, other) || seq == own.end || seq == other.acked
	case dir == fromEndpoint:
		ack := uint32(p.Num(pkt.Ack))
		return p.Num(pkt.Flags)&pkt.FlagACK != 0 && (ack == other.end || c.acceptsRedial(p))
	}
	return seq == own.end || seq+1 == own.end
}

package model

import (
	"time"

	"loxilb/internal/lb"
	"loxilb/internal/pkt"
)

// window is how far ahead of what was seen a number is believed.
const window = 1 << 24

func isSYN(p *pkt.Packet) bool {
	return p.Num(pkt.Flags)&(pkt.FlagSYN|pkt.FlagACK|pkt.FlagRST|pkt.FlagFIN) == pkt.FlagSYN
}

// seqEnd is the number after the segment's last.
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
	return c.reset || c.sides[0].finAcked && c.sides[1].finAcked
}

// state is the word that listings show.
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

// segment is a TCP segment of the connection.
func (c *connection) segment(p *pkt.Packet, dir direction, now time.Duration) {
	own, other := &c.sides[dir], &c.sides[1-dir]
	if c.oneWay {
		if c.segmentOneWay(p) {
			own.heard = now
		}
		return
	}
	flags, ack, end := p.Num(pkt.Flags), uint32(p.Num(pkt.Ack)), seqEnd(p)
	if flags&pkt.FlagRST != 0 {
		if c.believesReset(p, dir) {
			own.heard, c.reset = now, true
		}
		return
	}
	if isSYN(p) && dir == fromClient && c.replied {
		return // the endpoint answers it with a challenge
	}
	own.heard = now
	if !c.replied || end-own.end < window {
		own.end = end
	}
	if flags&pkt.FlagACK != 0 {
		own.acked = ack
	}
	if flags&pkt.FlagSYN != 0 {
		c.replied = c.replied || dir == fromEndpoint
		return
	}
	finBefore := other.fin
	if flags&pkt.FlagFIN != 0 && c.replied && (uint32(p.Num(pkt.Seq))-other.acked < window || end-own.end < window) {
		own.fin = true
	}
	if flags&pkt.FlagACK == 0 {
		return
	}
	if dir == fromClient && c.replied {
		c.open = true
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
		return seq-other.acked <= own.end-other.acked
	case dir == fromEndpoint:
		return p.Num(pkt.Flags)&pkt.FlagACK != 0 && uint32(p.Num(pkt.Ack)) == other.end
	}
	return seq == own.end || seq+1 == own.end
}

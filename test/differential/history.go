package differential

import (
	"slices"

	"loxilb/internal/lb"
	"loxilb/internal/pkt"
)

func (h *comparedStep) tcp() bool { return h.packet.Proto == pkt.TCP }

func (h *comparedStep) v6() bool { return h.flow.vip.Addr().Is6() }

// leftOnly reports whether all packets that were sent left on one side.
func (o outcome) leftOnly(server bool) bool {
	for _, s := range o.left {
		if (s.link == "server") != server {
			return false
		}
	}
	return len(o.left) > 0
}

// expired reports whether the packet arrived with a TTL of at most 1.
func (h *comparedStep) expired() bool { return h.packet.Has(pkt.TTL) && h.packet.Num(pkt.TTL) <= 1 }

// bothAnswer reports whether both balancers answered the sender.
func (h *comparedStep) bothAnswer() bool {
	return len(h.ours.left) == 1 && len(h.kernel.left) == 1 && h.ours.leftOnly(h.server) && h.kernel.leftOnly(h.server)
}

// quotedBytes returns the number of bytes that an ICMP error quotes after the IP header; -1 for
// another packet.
func (h *comparedStep) quotedBytes() int {
	if h.packet.Inner == nil {
		return -1
	}
	p := h.ours.arrived[0].Inner
	return len(p.BuildIP()) - p.Offset() + 14
}

// translated reports whether loxilb translated the packet and forwarded it to the other side.
func (h *comparedStep) translated() bool {
	return len(h.ours.left) == len(h.ours.arrived) && h.translatedBy(h.ours)
}

func (h *comparedStep) kernelTranslated() bool { return h.translatedBy(h.kernel) }

func (h *comparedStep) translatedBy(o outcome) bool {
	for _, s := range o.left {
		if h.server && !isError(h.packet) && s.packet.SrcAddr().Addr() != h.flow.vip.Addr() || s.packet.DstAddr().Addr() == h.flow.vip.Addr() {
			return false
		}
		if q := s.packet.Inner; q != nil && h.server && q.DstAddr().Addr() != h.flow.vip.Addr() {
			return false
		}
	}
	return o.leftOnly(!h.server)
}

// invalidSegment returns a segment of one of loxilb's connections that conntrack considers invalid:
// the kernel forwards it untranslated, or answers it.
func (h *comparedStep) invalidSegment() bool {
	return h.tcp() && h.kernel.invalid && h.translated()
}

// opens reports whether the packet is a client's SYN.
func (h *comparedStep) opens() bool {
	return !h.server && h.tcp() && kind(h.packet) == pkt.FlagSYN
}

// kind returns the flags that change states.
func kind(p *pkt.Packet) uint64 {
	return p.Num(pkt.Flags) & (pkt.FlagSYN | pkt.FlagACK | pkt.FlagFIN | pkt.FlagRST)
}

// validFlags are the TCP flags that conntrack accepts.
func validFlags(p *pkt.Packet) bool {
	urgent := p.Num(pkt.Flags)&pkt.FlagURG != 0
	switch kind(p) {
	case pkt.FlagSYN, pkt.FlagACK, pkt.FlagFIN | pkt.FlagACK:
		return true
	case pkt.FlagSYN | pkt.FlagACK, pkt.FlagRST, pkt.FlagRST | pkt.FlagACK:
		return !urgent
	}
	return false
}

// outOfState reports whether conntrack's state machine does not expect the segment.
func (h *comparedStep) outOfState() bool {
	switch kind(h.packet) {
	case pkt.FlagSYN:
		return h.server
	case pkt.FlagSYN | pkt.FlagACK:
		return !h.server
	case pkt.FlagFIN | pkt.FlagACK, pkt.FlagACK:
		return !h.replied()
	}
	return false
}

// conversation returns the steps of the flow from its client's last SYN on.
func (h *comparedStep) conversation() []*comparedStep {
	var all []*comparedStep
	for i := len(h.past) - 1; i >= 0; i-- {
		if g := h.past[i]; g.flow == h.flow {
			all = append(all, g)
			if g.opens() && g.tracked() {
				break
			}
		}
	}
	slices.Reverse(all)
	return all
}

// tracked reports whether conntrack has updated its state by the segment.
func (h *comparedStep) tracked() bool {
	return h.tcp() && !h.kernel.invalid && !h.expired() && len(h.kernel.left) > 0
}

// replied reports whether the endpoint has answered the client's SYN.
func (h *comparedStep) replied() bool {
	return slices.ContainsFunc(h.conversation(), func(g *comparedStep) bool {
		return g.server && g.tracked() && kind(g.packet) == pkt.FlagSYN|pkt.FlagACK
	})
}

// forgotten reports whether conntrack has removed the connection: a RST was the endpoint's first
// packet, or a SYN that would have opened the connection again was dropped later.
func (h *comparedStep) forgotten() bool {
	forgotten, replied := false, false
	for _, g := range h.conversation() {
		switch {
		case g.opens() && (g.expired() || g.ours.reason() == "martian-source"):
			forgotten = true
		case !g.tcp() || g.kernel.invalid || len(g.kernel.left) == 0:
		case kind(g.packet)&pkt.FlagRST != 0 && !replied:
			forgotten = true
		case g.server:
			replied = true
		}
	}
	return forgotten
}

// side selects one of the two outcomes of a step.
type side func(*comparedStep) outcome

func loxilbSide(h *comparedStep) outcome { return h.ours }
func kernelSide(h *comparedStep) outcome { return h.kernel }

// opensAgain reports whether a client's SYN has opened a new connection on the given side, and was
// part of the old one on the other side.
func (h *comparedStep) opensAgain(where side) bool {
	talk := h.conversation()
	if !h.opens() || !h.otherEndpoint() || len(talk) == 0 {
		return false
	}
	last := talk[len(talk)-1]
	return where(h).ends != where(last).ends
}

// otherEndpoint reports whether the two balancers have sent a client's packet to different
// endpoints.
func (h *comparedStep) otherEndpoint() bool {
	return !h.server && h.translated() && h.kernelTranslated() && h.ours.ends.endpoint != h.kernel.ends.endpoint
}

// hadFlag reports whether an earlier segment of the flow had the flag.
func (h *comparedStep) hadFlag(flag uint64) bool {
	return slices.ContainsFunc(h.past, func(g *comparedStep) bool {
		return g.flow == h.flow && g.tcp() && g.packet.Num(pkt.Flags)&flag != 0
	})
}

// clientHadFlag reports whether an earlier segment of any flow of the client's address and port had
// the flag: the endpoint sees the same tuple.
func (h *comparedStep) clientHadFlag(flag uint64) bool {
	return slices.ContainsFunc(h.past, func(g *comparedStep) bool {
		return g.flow.client == h.flow.client && g.flow != h.flow && g.tcp() && g.packet.Num(pkt.Flags)&flag != 0
	})
}

// reopened reports whether a client of the same VIP has sent a SYN in a connection that may have
// ended.
func (h *comparedStep) reopened() bool {
	return slices.ContainsFunc(h.past, func(g *comparedStep) bool {
		return g.opens() && g.flow.vip == h.flow.vip && (g.hadFlag(pkt.FlagRST) || g.hadFlag(pkt.FlagFIN))
	})
}

// replaced reports whether the client has opened a connection through another VIP after this one.
func (h *comparedStep) replaced() bool {
	return slices.ContainsFunc(h.past, func(g *comparedStep) bool {
		return g.opens() && g.flow.client == h.flow.client && g.flow != h.flow && (h.hadFlag(pkt.FlagRST) || h.hadFlag(pkt.FlagFIN))
	})
}

// refused reports whether loxilb had no connection for the segment.
func (h *comparedStep) refused() bool { return h.ours.reason() == "no-connection" }

// otherPort reports whether the kernel chose another source port than the client's, in default
// mode.
func (h *comparedStep) otherPort() bool {
	return !h.server && h.services[0].Mode == lb.ModeDefault && len(h.kernel.left) == 1 && h.kernel.left[0].packet.SrcAddr() != h.flow.client
}

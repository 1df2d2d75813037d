package differential

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"loxilb/internal/pkt"
	"loxilb/test/packet/lab"
)

// shrink removes steps as long as the sequence still shows an unintended difference.
func shrink(p *pair, q *sequence) *sequence {
	for again := true; again; {
		again = false
		for i := len(q.steps) - 1; i >= 0; i-- {
			fewer := *q
			fewer.steps = slices.Delete(slices.Clone(q.steps), i, i+1)
			ours, kernel, err := p.run(&fewer)
			if err == nil && compare(&fewer, ours, kernel).bad != nil {
				q, again = &fewer, true
			}
		}
	}
	return q
}

// script returns the sequence as a packet script (test/packet), with loxilb's outcome.
func script(n *lab.Network, q *sequence, ours []outcome) string {
	var b strings.Builder
	for _, s := range q.services {
		fmt.Fprintf(&b, "service %s\n", s)
	}
	for i, s := range q.steps {
		for k := range ours[i].arrived {
			scriptStep(&b, n, q.flows[s.flow], s, ours[i], k)
		}
	}
	return b.String()
}

// scriptStep writes the k-th packet of a step.
func scriptStep(b *strings.Builder, n *lab.Network, f flow, s step, o outcome, k int) {
	arrived, reason := o.arrived[k], o.reasons[k]
	if arrived.Inner != nil { // a quote may be truncated
		arrived = pkt.Decode(arrived.Build())
	}
	line := s.linkName() + " " + withPortName(arrived.Brief(), f, o.ends, false).String()
	var left *sent
	for _, out := range o.left {
		if out.cause == k {
			left = &out
		}
	}
	switch {
	case left == nil && reason != "":
		fmt.Fprintf(b, "drop %s reason=%s\n", line, reason)
		return
	case left == nil, reason == "" && (left.link == s.linkName() || left.packet.SrcAddr() == arrived.SrcAddr() && left.packet.DstAddr() == arrived.DstAddr()):
		fmt.Fprintf(b, "pass %s\n", line) // the kernel sent what left
		return
	case reason != "":
		line += " reason=" + reason
	}
	link, _ := n.Link(left.link)
	fmt.Fprintf(b, "in %s\nout %s %s\n", line, left.link, withPortName(n.Changes(arrived, left.packet, link), f, o.ends, true))
}

// withPortName replaces a source port that is not the client's own by a variable: the balancer may
// choose another port each time.
func withPortName(p *pkt.Packet, f flow, e ends, left bool) *pkt.Packet {
	if e.source.Port() == f.client.Port() {
		return p
	}
	name := fmt.Sprintf("P%d", f.client.Port())
	for q := p; q != nil; q = q.Inner {
		replacePort(q, pkt.Src, pkt.SrcPort, e.source, pkt.Value{Var: name})
		replacePort(q, pkt.Dst, pkt.DstPort, e.source, pkt.Value{Var: name})
	}
	if left && p.Value(pkt.SrcPort).Var == name {
		p.Set(pkt.SrcPort, pkt.Value{Bind: name})
	}
	return p
}

func replacePort(p *pkt.Packet, addr, port pkt.Field, source netip.AddrPort, v pkt.Value) {
	if p.Has(port) && p.Value(addr).Addr == source.Addr() && p.Num(port) == uint64(source.Port()) {
		p.Set(port, v)
	}
}

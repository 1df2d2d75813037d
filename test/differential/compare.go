package differential

import (
	"fmt"
	"slices"
	"strings"

	"loxilb/internal/pkt"
)

// comparedStep is a step and its outcome in both load balancers.
type comparedStep struct {
	*sequence
	step
	flow         flow
	ours, kernel outcome
	past         []*comparedStep // the steps before it
}

// verdict is the result of comparing a sequence.
type verdict struct {
	seen     map[string]int // differences, by name: how often
	compared int            // number of compared steps
	bad      *comparedStep  // the first unintended difference
}

// compare compares the packets that left, step by step.
func compare(q *sequence, ours, kernel []outcome) verdict {
	v := verdict{seen: map[string]int{}}
	var past []*comparedStep
	for i, s := range q.steps {
		h := &comparedStep{sequence: q, step: s, flow: q.flows[s.flow], ours: ours[i], kernel: kernel[i], past: past}
		h.flow = h.owner()
		past = append(past, h)
		v.compared++
		if h.same() {
			continue
		}
		d := h.difference()
		if d == nil {
			v.bad = h
			return v
		}
		v.seen[d.name]++
		if d.ends {
			return v
		}
	}
	return v
}

// owner returns the flow of a step. If the endpoint has received no packet of the step's flow, the
// step belongs to another flow with the same client address and port.
func (h *comparedStep) owner() flow {
	own := h.flow
	owner := own
	for _, g := range h.past {
		if !h.server || g.server || !g.translated() || g.flow.client != own.client || g.flow.proto != own.proto {
			continue
		}
		if owner = g.flow; owner == own {
			break
		}
	}
	return owner
}

// difference returns the intended difference that the step shows, or nil.
func (h *comparedStep) difference() *difference {
	for _, d := range differences() {
		if d.is(h) {
			return &d
		}
	}
	return nil
}

// same reports whether the same packets left both balancers, except for values that each balancer
// chooses.
func (h *comparedStep) same() bool {
	equal := func(a, b sent) bool { return a.link == b.link && a.packet.Equal(b.packet) }
	if slices.EqualFunc(h.ours.left, h.kernel.left, equal) { // usually, and cheaper than the comparison below
		return true
	}
	return slices.Equal(h.lines(h.ours), h.lines(h.kernel))
}

// lines returns the packets that left, normalized, as text.
func (h *comparedStep) lines(o outcome) []string {
	var all []string
	for _, s := range o.left {
		all = append(all, "out "+s.link+" "+h.normal(s.packet, o).String())
	}
	return all
}

// String shows both outcomes of the step, and the fields that differ.
func (h *comparedStep) String() string {
	var b strings.Builder
	for _, p := range h.ours.arrived {
		fmt.Fprintf(&b, "in %s %s\n", h.linkName(), p.Brief())
	}
	fmt.Fprintf(&b, "ours:   %s\nkernel: %s\n", h.ours, h.kernel)
	if len(h.ours.left) != 1 || len(h.kernel.left) != 1 {
		return b.String()
	}
	kernel, ours := h.normal(h.kernel.left[0].packet, h.kernel), h.normal(h.ours.left[0].packet, h.ours)
	for line := range strings.Lines(pkt.Diff(kernel, ours, nil)) {
		if strings.HasPrefix(line, "!") {
			b.WriteString(line)
		}
	}
	return b.String()
}

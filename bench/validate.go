package main

import (
	"fmt"
	"slices"
)

// usedAll returns what is wrong when an endpoint answered nothing, or, where each connection has
// the same work, less than half of what another did.
func usedAll(counts []uint64, evenly bool) string {
	if len(counts) == 0 {
		return ""
	}
	if least, most := slices.Min(counts), slices.Max(counts); least == 0 || evenly && least*2 < most {
		return fmt.Sprintf("the endpoints answered %v", counts)
	}
	return ""
}

// judgeRetransmissions marks samples with more retransmissions, per answer, than plain routing had
// in its worst round, and some more as the work allows. It needs all rounds; without plain routing
// there is nothing to judge by.
func (r *result) judgeRetransmissions() {
	worst, seen, more := map[string]float64{}, map[string]bool{}, map[string]float64{}
	for _, w := range works(r.Setting) {
		more[w.name] = w.again
	}
	for _, s := range r.Samples {
		if s.Contender == baseline && s.Invalid == "" && s.Answers > 0 {
			worst[s.Work] = max(worst[s.Work], float64(s.Retransmissions)/s.Answers)
			seen[s.Work] = true
		}
	}
	for i := range r.Samples {
		s := &r.Samples[i]
		if !seen[s.Work] || s.Invalid != "" || s.Answers == 0 {
			continue
		}
		if rate := float64(s.Retransmissions) / s.Answers; rate > worst[s.Work]+more[s.Work] {
			s.Invalid = fmt.Sprintf("%d retransmissions, %.1f in 10,000 answers; plain routing has at most %.1f",
				s.Retransmissions, rate*1e4, worst[s.Work]*1e4)
		}
	}
}

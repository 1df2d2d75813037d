package rest

import (
	v1 "loxilb/api/v1"
	"loxilb/internal/diagnose/rates"
	"loxilb/internal/lb"
)

// Handshakes returns how long handshakes took; nil: there were none.
func Handshakes(t rates.Times) *v1.HandshakeTimes {
	if t.Count == 0 {
		return nil
	}
	return &v1.HandshakeTimes{Count: t.Count, Median: t.Median.Seconds(), P99: t.P99.Seconds()}
}

// RefusedBy lists what was refused, by reason.
func RefusedBy(r *lb.Refusals) []v1.RefusedCount {
	out := []v1.RefusedCount{}
	r.Each(func(reason lb.RefusalReason, n uint64) {
		out = append(out, v1.RefusedCount{Reason: reason.String(), Count: n})
	})
	return out
}

package answer

import (
	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
)

// RefusedBy lists what was refused, by reason.
func RefusedBy(r *lb.Refusals) []v1.RefusedCount {
	out := []v1.RefusedCount{}
	r.Each(func(reason lb.RefusalReason, n uint64) {
		out = append(out, v1.RefusedCount{Reason: reason.String(), Count: n})
	})
	return out
}

package compile

import (
	"cmp"

	"loxilb/internal/lb"
)

// maxSlots bounds the table of one service: a segment of the slots map. Weights are exact if their
// sum, divided by their greatest common divisor, fits; otherwise to within one part in 65,536.
const maxSlots = 65536

// slots returns a table for smooth weighted round robin, in which an endpoint of weight w has w
// slots, spread as evenly as the others allow. With equal weights it has the endpoints in the order
// of the list.
func slots(weights []uint32) []uint32 {
	weights, total := scale(weights)
	out := make([]uint32, 0, total)
	if allEqual(weights) {
		for i, w := range weights {
			if w > 0 {
				out = append(out, uint32(i))
			}
		}
		return out
	}
	return append(out, smooth(weights, total)...)
}

// allEqual reports whether all nonzero weights are the same.
func allEqual(weights []uint32) bool {
	var first uint32
	for _, w := range weights {
		if first == 0 {
			first = w
		}
		if w != 0 && w != first {
			return false
		}
	}
	return true
}

// scale divides weights by their greatest common divisor. If the sum is still larger than maxSlots,
// it scales them down to that sum. It returns the new weights and their sum.
func scale(weights []uint32) ([]uint32, int) {
	var sum uint64
	var d uint32
	for _, w := range weights {
		sum += uint64(w)
		d = gcd(d, w)
	}
	if d == 0 {
		return weights, 0
	}
	out := make([]uint32, len(weights))
	for i, w := range weights {
		out[i] = w / d
	}
	sum /= uint64(d)
	if sum <= maxSlots {
		return out, int(sum)
	}
	return scaleToSlots(out, sum), maxSlots
}

// scaleToSlots returns each weight's share of maxSlots: at least 1 if the weight is not zero,
// rounded by the largest remainder.
func scaleToSlots(weights []uint32, sum uint64) []uint32 {
	out := make([]uint32, len(weights))
	left := maxSlots
	for i, w := range weights {
		if w == 0 {
			continue
		}
		out[i] = max(1, uint32(uint64(w)*maxSlots/sum))
		left -= int(out[i])
	}
	for left != 0 {
		step := cmp.Compare(left, 0)
		out[largestGap(weights, out, sum, left > 0)] += uint32(step) // wraps for -1: subtracts
		left -= step
	}
	return out
}

// largestGap returns the endpoint that is farthest below its share if short, otherwise the one that
// is farthest above it.
func largestGap(weights, have []uint32, sum uint64, short bool) int {
	best, bestGap := -1, int64(0)
	for i, w := range weights {
		if w == 0 || (!short && have[i] == 1) {
			continue
		}
		gap := int64(uint64(w)*maxSlots) - int64(uint64(have[i])*sum)
		if !short {
			gap = -gap
		}
		if best < 0 || gap > bestGap {
			best, bestGap = i, gap
		}
	}
	return best
}

// gcd returns the greatest common divisor; that of 0 and n is n.
func gcd[T uint32 | uint64](a, b T) T {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// Tenths is the value of Weights.Fractions for a full weight.
const Tenths = 10

// Weights are the weights of endpoints for new connections.
type Weights struct {
	Current   []uint32 // weight of each endpoint; 0: no new connections
	Fractions []uint8  // tenths of each weight that count now, during slow start; nil: all Tenths
}

// scaled returns the weights in tenths, or unchanged if none is reduced.
func (w *Weights) scaled(weights []uint32) []uint32 {
	if w.Fractions == nil {
		return weights
	}
	scaled := make([]uint32, len(weights))
	for i, t := range weights {
		scaled[i] = t * uint32(w.Fractions[i])
	}
	return scaled
}

// rowWeight returns the weight for an endpoint's row. With slow start it is in tenths, so a
// restarted daemon can restore the progress of the ramp.
func (w *Weights) rowWeight(s *lb.Service, i int) uint32 {
	switch {
	case s.SlowStart == 0:
		return w.Current[i]
	case w.Fractions == nil:
		return w.Current[i] * Tenths
	}
	return w.Current[i] * uint32(w.Fractions[i])
}

// EffectiveWeights returns the weights of a service's endpoints for new connections. up reports
// whether an endpoint is eligible; nil means all are. An endpoint has weight 0 if it is down, or a
// backup that is not needed. If none is up, lb.AllDownPanic treats all as up.
func EffectiveWeights(s *lb.Service, up func(lb.Endpoint) bool) []uint32 {
	weights := HealthyWeights(s, up)
	ClearBackups(s, weights, s.ActiveLevel(weights))
	return weights
}

// HealthyWeights is EffectiveWeights with all backups included.
func HealthyWeights(s *lb.Service, up func(lb.Endpoint) bool) []uint32 {
	weights, eligible := make([]uint32, len(s.Endpoints)), false
	for i, e := range s.Endpoints {
		if up == nil || up(e) {
			weights[i] = uint32(e.Weight)
			eligible = eligible || e.Weight > 0
		}
	}
	if !eligible && up != nil && s.AllDown == lb.AllDownPanic {
		return HealthyWeights(s, nil)
	}
	return weights
}

// ClearBackups sets the weights of backups above a level to 0.
func ClearBackups(s *lb.Service, weights []uint32, level uint8) {
	for i, e := range s.Endpoints {
		if e.Backup > level {
			weights[i] = 0
		}
	}
}

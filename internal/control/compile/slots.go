package compile

import (
	"loxilb/internal/lb"
)

// maxSlots bounds the table of one service: a segment of the slots map. Weights are exact if their
// sum, divided by their greatest common divisor, fits; otherwise to within one part in 65,536.
const maxSlots = 65536

// slots orders the endpoints so that walking through the table is smooth weighted round robin: in
// each round an endpoint of weight w appears w times, spread as evenly as the others allow, and
// ties follow the order of the list. With equal weights it is the list itself.
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

// scale divides by the greatest common divisor and, should the sum still be too large, shrinks it
// to maxSlots, the largest remainders rounded up, no endpoint left without a place.
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

// scaleToSlots gives each weight its share of maxSlots places: at least one if it is not zero, the
// rest by the largest remainder.
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
	for ; left != 0; left -= step(left) {
		out[largestGap(weights, out, sum, left > 0)] += uint32(step(left)) // wraps for -1: subtracts
	}
	return out
}

func step(left int) int {
	if left > 0 {
		return 1
	}
	return -1
}

// largestGap returns the endpoint whose places fall shortest of its share (short), or exceed it
// most.
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

// Tenths is a full weight fraction.
const Tenths = 10

// Weights are the weights of endpoints for new connections.
type Weights struct {
	Current   []uint32 // weight of each endpoint for new connections; 0: none
	Fractions []uint8  // current tenths of each weight; nil: all full
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

// row returns the weight in an endpoint's row. With slow start it is in tenths, so a later process
// can restore the progress of the ramp.
func (w *Weights) row(s *lb.Service, i int) uint32 {
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
// backup that is not needed. While none is up, all count as up if the service asks for that.
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

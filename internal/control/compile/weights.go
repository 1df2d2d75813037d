package compile

import "loxilb/internal/lb"

// Tenths is a full weight fraction.
const Tenths = 10

// Weights are the weights of endpoints for new connections.
type Weights struct {
	Takes     []uint32 // weight of each; 0: none
	Fractions []uint8  // current tenths of each weight; nil: all full
}

// scaled returns the weights in tenths, or unchanged if none is reduced.
func (w *Weights) scaled(takes []uint32) []uint32 {
	if w.Fractions == nil {
		return takes
	}
	scaled := make([]uint32, len(takes))
	for i, t := range takes {
		scaled[i] = t * uint32(w.Fractions[i])
	}
	return scaled
}

// row returns the weight in an endpoint's row. With slow start it is in tenths, so a later process
// can tell how far the ramp was.
func (w *Weights) row(s *lb.Service, i int) uint32 {
	switch {
	case s.SlowStart == 0:
		return w.Takes[i]
	case w.Fractions == nil:
		return w.Takes[i] * Tenths
	}
	return w.Takes[i] * uint32(w.Fractions[i])
}

// EffectiveWeights returns the weights of a service's endpoints for new connections. up reports
// whether an endpoint is eligible; nil means all are. An endpoint has weight 0 if it is down, or a
// backup that is not needed. While none is up, all count as up if the service asks for that.
func EffectiveWeights(s *lb.Service, up func(lb.Endpoint) bool) []uint32 {
	takes := HealthyWeights(s, up)
	ClearBackups(s, takes, s.Level(takes))
	return takes
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
func ClearBackups(s *lb.Service, takes []uint32, level uint8) {
	for i, e := range s.Endpoints {
		if e.Backup > level {
			takes[i] = 0
		}
	}
}

package compile

import "loxilb/internal/lb"

// Tenths are all of an endpoint's weight.
const Tenths = 10

// Weights are what endpoints take of new connections.
type Weights struct {
	Takes  []uint32 // weight of each; 0: none
	Shares []uint8  // tenths of it that each has now; nil: all
}

// parts are the weights in tenths, or whole if none has less.
func (w *Weights) parts(takes []uint32) []uint32 {
	if w.Shares == nil {
		return takes
	}
	parts := make([]uint32, len(takes))
	for i, t := range takes {
		parts[i] = t * uint32(w.Shares[i])
	}
	return parts
}

// row is the weight in an endpoint's row: in tenths wherever endpoints come slowly, so that a later process can tell how far they were.
func (w *Weights) row(s *lb.Service, i int) uint32 {
	switch {
	case s.SlowStart == 0:
		return w.Takes[i]
	case w.Shares == nil:
		return w.Takes[i] * Tenths
	}
	return w.Takes[i] * uint32(w.Shares[i])
}

// Takers are the weights of a service's endpoints for new connections. up tells whether an endpoint may take some; nil: all may.
// An endpoint has 0 if it is down, or a backup that is not needed. While none is up, all are taken to be, if the service asks for it.
func Takers(s *lb.Service, up func(lb.Endpoint) bool) []uint32 {
	takes := UpTakers(s, up)
	Standby(s, takes, s.Level(takes))
	return takes
}

// UpTakers are Takers with all backups among them.
func UpTakers(s *lb.Service, up func(lb.Endpoint) bool) []uint32 {
	weights, taking := make([]uint32, len(s.Endpoints)), false
	for i, e := range s.Endpoints {
		if up == nil || up(e) {
			weights[i] = uint32(e.Weight)
			taking = taking || e.Weight > 0
		}
	}
	if !taking && up != nil && s.AllDown == lb.AllDownPanic {
		return UpTakers(s, nil)
	}
	return weights
}

// Standby has backups above a level take nothing.
func Standby(s *lb.Service, takes []uint32, level uint8) {
	for i, e := range s.Endpoints {
		if e.Backup > level {
			takes[i] = 0
		}
	}
}

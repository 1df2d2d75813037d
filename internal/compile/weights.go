package compile

import "loxilb/internal/lb"

// Takers are the weights of a service's endpoints for new connections. up tells whether an endpoint may take some; nil: all may.
// An endpoint has 0 if it is down, or a backup that is not needed. While none is up, all are taken to be, if the service asks for it.
func Takers(s *lb.Service, up func(lb.Endpoint) bool) []uint32 {
	takes := upWeights(s, up)
	Standby(s, takes, s.Level(takes))
	return takes
}

// upWeights are Takers with all backups among them.
func upWeights(s *lb.Service, up func(lb.Endpoint) bool) []uint32 {
	weights, taking := make([]uint32, len(s.Endpoints)), false
	for i, e := range s.Endpoints {
		if up == nil || up(e) {
			weights[i] = uint32(e.Weight)
			taking = taking || e.Weight > 0
		}
	}
	if !taking && up != nil && s.AllDown == lb.AllDownPanic {
		return upWeights(s, nil)
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

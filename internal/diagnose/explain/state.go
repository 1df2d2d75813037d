package explain

import (
	"fmt"

	"loxilb/internal/control/servicestate"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// states returns the state of a service and of its endpoints, as every view shows it.
func (i *inquiry) states(s *lb.Service) (servicestate.Service, []servicestate.Endpoint) {
	stats, known := i.DataPath.ServiceStats(s.Key)
	sync := servicestate.SyncApplied
	if !known {
		sync = servicestate.SyncPending
	}
	endpoints := servicestate.Gather(s, &stats, servicestate.DrainsOf(i.Desired.Drains.All(i.now)), i.Health)
	return servicestate.Of(endpoints, sync), endpoints
}

func isDown(s servicestate.State) bool { return s == servicestate.Down || s == servicestate.Panic }

// eligible returns the endpoints that get new connections, and why other endpoints get none.
func (i *inquiry) eligible(s *lb.Service) (eligible []lb.Endpoint, ineligible []string) {
	_, endpoints := i.states(s)
	for n, e := range s.Endpoints {
		if endpoints[n].Available {
			eligible = append(eligible, e)
			continue
		}
		ineligible = append(ineligible, fmt.Sprintf("%s is not available: %s", e.AddrPort(), i.ineligibleReason(s, n, endpoints[n])))
	}
	return eligible, ineligible
}

// ineligibleReason returns why the n-th endpoint gets no new connections: its state and the reason.
func (i *inquiry) ineligibleReason(s *lb.Service, n int, known servicestate.Endpoint) string {
	e, state := s.Endpoints[n], known.State()
	switch {
	case (state == servicestate.Draining || state == servicestate.Drained) && e.Weight == 0:
		return fmt.Sprintf("it is %s: its weight is 0", state)
	case state == servicestate.Draining, state == servicestate.Drained:
		return fmt.Sprintf("it is %s (see loxicmd get drain)", state)
	case isDown(state):
		return i.downReason(s, e, known)
	case state == servicestate.Standby:
		return fmt.Sprintf("it is standby: a backup of level %d, while earlier levels are available", e.Backup)
	}
	return fmt.Sprintf("it is %s, but not applied to the data path yet, or its slow start begins", state)
}

// downReason returns why an endpoint is down. A missing route is reason enough, and may be the only
// evidence.
func (i *inquiry) downReason(s *lb.Service, e lb.Endpoint, known servicestate.Endpoint) string {
	if why := i.refusal(s, e); why != "" {
		return why
	}
	why := i.evidence(e, report.HealthDown)
	if known.NoRoute && why == noEvidence(report.HealthDown) {
		why += ": it has no route, or a route that refuses packets (see loxicmd get status --failed)"
	}
	return why
}

// refusal returns which IPsec policy refuses all packets to an endpoint or its answers; empty if
// none.
func (i *inquiry) refusal(s *lb.Service, e lb.Endpoint) string {
	r, refused := i.Health.IPsecRefusal(s, e)
	if !refused || !r.RefusesAll {
		return ""
	}
	return "it is down: an IPsec policy covers packets to it or its answers: " + r.Policy
}

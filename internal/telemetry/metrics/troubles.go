package metrics

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"loxilb/internal/lb"
)

// troubleKey identifies an endpoint of a service.
type troubleKey struct {
	service  lb.Key
	endpoint netip.AddrPort
}

// trouble counts failures of an endpoint.
type trouble struct {
	failed   uint64        // probes
	downtime time.Duration // at the worst of its probes, handshakes of clients among them
}

// troubles sum the failures of endpoints for each service. Sums never decrease: the failures of an
// endpoint that leaves a service still count, and those before an endpoint joined do not.
type troubles struct {
	mu       sync.Mutex
	last     map[troubleKey]trouble
	services map[lb.Key]*lb.Service // at the last update
	total    map[lb.Key]trouble     // that are not zero
}

// update adds new failures of endpoints, and returns the sums of current services.
func (t *troubles) update(services []*lb.Service, now map[troubleKey]trouble) map[lb.Key]trouble {
	t.mu.Lock()
	defer t.mu.Unlock()
	total, current := map[lb.Key]trouble{}, make(map[lb.Key]*lb.Service, len(services))
	for _, s := range services {
		current[s.Key] = s
		if sum, known := t.total[s.Key]; known {
			total[s.Key] = sum
		}
	}
	for of, one := range now {
		last, had := t.last[of]
		if _, before := t.total[of.service]; before && !had && !t.wasIn(of) {
			continue // from before the endpoint joined the service
		}
		if one.failed < last.failed || one.downtime < last.downtime {
			last = trouble{} // its counters have restarted
		}
		sum := total[of.service]
		sum = trouble{sum.failed + one.failed - last.failed, sum.downtime + one.downtime - last.downtime}
		if sum != (trouble{}) {
			total[of.service] = sum
		}
	}
	t.last, t.services, t.total = now, current, total
	return total
}

// wasIn reports whether an endpoint belonged to the service at the last update. One without a probe
// has counts only from its first failure on.
func (t *troubles) wasIn(of troubleKey) bool {
	s := t.services[of.service]
	return s != nil && slices.ContainsFunc(s.Endpoints, func(e lb.Endpoint) bool { return e.AddrPort() == of.endpoint })
}

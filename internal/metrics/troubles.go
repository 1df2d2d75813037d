package metrics

import (
	"net/netip"
	"sync"
	"time"

	"loxilb/internal/lb"
)

// troubleOf tells endpoints of a service apart.
type troubleOf struct {
	service  lb.Key
	endpoint netip.AddrPort
}

// trouble is what an endpoint has counted against it.
type trouble struct {
	failed   uint64        // probes
	downtime time.Duration // at the worst of its probes, handshakes of clients among them
}

// troubles add up what endpoints have counted against them, for each service. Sums never go back: an endpoint that
// leaves a service leaves its share behind, and one that comes brings no share of what was before.
type troubles struct {
	mu    sync.Mutex
	last  map[troubleOf]trouble
	total map[lb.Key]trouble
}

// look takes what endpoints have counted by now, and returns the sums of the services that there are.
func (t *troubles) look(services []lb.Key, endpoints func(func(*lb.EndpointHealth) bool)) map[lb.Key]trouble {
	now := troublesOf(endpoints)
	t.mu.Lock()
	defer t.mu.Unlock()
	total := map[lb.Key]trouble{}
	for _, key := range services {
		if sum, known := t.total[key]; known {
			total[key] = sum
		}
	}
	for of, one := range now {
		last, had := t.last[of]
		if _, before := t.total[of.service]; before && !had {
			continue // the endpoint has come to the service with what it has
		}
		if one.failed < last.failed || one.downtime < last.downtime {
			last = trouble{} // its counters have restarted
		}
		sum := total[of.service]
		total[of.service] = trouble{sum.failed + one.failed - last.failed, sum.downtime + one.downtime - last.downtime}
	}
	t.last, t.total = now, total
	return total
}

// troublesOf collects the counts of endpoints that are not zero.
func troublesOf(endpoints func(func(*lb.EndpointHealth) bool)) map[troubleOf]trouble {
	now := map[troubleOf]trouble{}
	for e := range endpoints {
		if e.Failed == 0 && e.Downtime == 0 {
			continue
		}
		for _, service := range e.Services {
			of := troubleOf{service, netip.AddrPortFrom(e.Addr, e.Probe.Port)}
			one := now[of]
			now[of] = trouble{one.failed + e.Failed, max(one.downtime, e.Downtime)}
		}
	}
	return now
}

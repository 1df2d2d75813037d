package reconcile

import (
	"cmp"
	"time"

	"loxilb/internal/datapath/bpf"
	"loxilb/internal/health"
	"loxilb/internal/lb"
)

// failRate is how many TCP connections of an endpoint that is down end in a second.
const failRate = 1000

// putEnds says when connections of a service's endpoints end: those that are drained have a deadline, and of those that are down the
// service says what becomes of theirs. An endpoint that takes new connections keeps all.
func (s *Services) putEnds(service *lb.Service, table *bpf.ServiceTable) {
	now := s.Desired.Snapshot()
	serves := false
	for _, e := range table.Endpoints {
		serves = serves || e.Takes > 0
	}
	for i, e := range service.Endpoints {
		row := &table.Endpoints[i]
		if row.Takes > 0 {
			continue
		}
		row.Ends = s.Health.endsOfFailed(service, e, serves)
		row.Failed = serves && s.Health.isDown(service, e)
		if d, ok := s.Desired.Drains.Of(now, e); ok && !d.Deadline.IsZero() {
			row.Ends = sooner(row.Ends, bpf.Ends{At: d.Deadline, Rate: d.Rate, Why: "endpoint drained"})
		}
	}
}

// isDown tells whether an endpoint is, by probes or by handshakes that fail.
func (h *Health) isDown(s *lb.Service, e lb.Endpoint) bool {
	status, ok := h.probes.prober.Status(h.probes.keyOf(s, e))
	return ok && status.State == health.Down
}

// endsOfFailed says when connections end of an endpoint that is down. Flows of UDP have no end that anybody could wait for: they move
// to another endpoint, if there is one.
func (h *Health) endsOfFailed(s *lb.Service, e lb.Endpoint, serves bool) bpf.Ends {
	after, ends := s.After(s.OnFail)
	if s.Protocol != lb.TCP {
		after, ends = 0, serves
	}
	if !ends {
		return bpf.Ends{}
	}
	status, ok := h.probes.prober.Status(h.probes.keyOf(s, e))
	// Handshakes that fail say nothing of connections that are open.
	if !ok || status.Asked != health.Down {
		return bpf.Ends{}
	}
	return bpf.Ends{At: cmp.Or(status.AskedSince, time.Now()).Add(after), Rate: failRate, Why: "endpoint down"}
}

func sooner(a, b bpf.Ends) bpf.Ends {
	if a.At.IsZero() || b.At.Before(a.At) {
		return b
	}
	return a
}

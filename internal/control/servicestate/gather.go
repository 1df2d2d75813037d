package servicestate

import (
	"net/netip"

	"loxilb/internal/control/status"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// Health returns the health of an endpoint of a service.
type Health interface {
	EndpointVerdict(s *lb.Service, e lb.Endpoint) report.Verdict
}

// Drains finds out which endpoints are ordered to drain.
type Drains map[netip.AddrPort]bool // by address without a port, and by address and port

// DrainsOf indexes drain orders.
func DrainsOf(all func(yield func(lb.Drain) bool)) Drains {
	d := Drains{}
	for order := range all {
		d[netip.AddrPortFrom(order.Addr, order.Port)] = true
	}
	return d
}

// Has reports whether an endpoint is ordered to drain.
func (d Drains) Has(at netip.AddrPort) bool {
	return len(d) > 0 && (d[at] || d[netip.AddrPortFrom(at.Addr(), 0)])
}

// Gather collects the input for the states of a service's endpoints. stats may have fewer endpoints
// than the service: the store can be ahead of the data path.
func Gather(s *lb.Service, stats *report.ServiceStats, drains Drains, h Health) []Endpoint {
	out := make([]Endpoint, len(s.Endpoints))
	for i, e := range s.Endpoints {
		out[i] = Endpoint{Verdict: h.EndpointVerdict(s, e), Weight: e.Weight, Drained: drains.Has(e.AddrPort()), Backup: e.Backup > 0}
		if i < len(stats.Endpoints) {
			out[i].Available, out[i].Open = stats.Endpoints[i].Available, stats.Endpoints[i].Active
		}
	}
	return out
}

// SyncOf returns the data path's progress with a service, from its status.
func SyncOf(s status.Status) Sync {
	switch s.State() {
	case status.Applied:
		return Applied
	case status.Failed:
		return Refused
	}
	return NotYet
}

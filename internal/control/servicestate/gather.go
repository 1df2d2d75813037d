package servicestate

import (
	"iter"
	"net/netip"

	"loxilb/internal/control/status"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// Health is a source of the health of endpoints.
type Health interface {
	EndpointVerdict(s *lb.Service, e lb.Endpoint) report.Verdict
}

// Drains is an index of drains by address and port. Port 0 stands for all ports of the address.
type Drains map[netip.AddrPort]bool

// DrainsOf returns an index of drains.
func DrainsOf(all iter.Seq[lb.Drain]) Drains {
	d := Drains{}
	for drain := range all {
		d[netip.AddrPortFrom(drain.Addr, drain.Port)] = true
	}
	return d
}

// Has reports whether there is a drain of an endpoint.
func (d Drains) Has(at netip.AddrPort) bool {
	return len(d) > 0 && (d[at] || d[netip.AddrPortFrom(at.Addr(), 0)])
}

// Gather returns the inputs for the states of a service's endpoints. stats may have fewer endpoints
// than the service, as the store can be ahead of the data path.
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

// SyncOf returns the Sync of a service with a status.
func SyncOf(s status.Status) Sync {
	switch s.State() {
	case status.Applied:
		return SyncApplied
	case status.Failed:
		return SyncFailed
	}
	return SyncPending
}

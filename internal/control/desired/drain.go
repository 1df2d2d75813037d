package desired

import (
	"net/netip"
	"slices"
	"time"

	"loxilb/internal/control/store"
	"loxilb/internal/kinds"
	"loxilb/internal/lb"
)

// Drains is the table of drains of endpoints.
type Drains struct{ store.Table[lb.Drain] }

// Apply returns the service with weight 0 for drained endpoints. After the deadline, they have no
// server ID either: otherwise, each QUIC connection would return with its client's next packet.
func (d *Drains) Apply(snapshot *store.Snapshot, s lb.Service) lb.Service {
	cloned := false
	for drain := range d.All(snapshot) {
		for i, e := range s.Endpoints {
			if !drain.Matches(e.Addr, e.Port) {
				continue
			}
			if !cloned {
				s.Endpoints, cloned = slices.Clone(s.Endpoints), true
			}
			s.Endpoints[i].Weight = 0
			if !drain.Deadline.IsZero() && time.Until(drain.Deadline) <= 0 {
				s.Endpoints[i].ServerID = ""
			}
		}
	}
	return s
}

// NextDeadline returns the time until Apply removes the next server ID from a service, which is the
// result of an earlier call; 0: it has none to remove. A deadline may have passed since that call.
func (d *Drains) NextDeadline(snapshot *store.Snapshot, s *lb.Service) (next time.Duration) {
	for drain := range d.All(snapshot) {
		if drain.Deadline.IsZero() {
			continue
		}
		left := max(time.Until(drain.Deadline), 1)
		if (next == 0 || left < next) &&
			slices.ContainsFunc(s.Endpoints, func(e lb.Endpoint) bool { return e.ServerID != "" && drain.Matches(e.Addr, e.Port) }) {
			next = left
		}
	}
	return next
}

// DrainedAddr returns the address in a drain's ID, whether or not the drain exists. It returns
// false for the ID of another kind.
func DrainedAddr(id store.ID) (netip.Addr, bool) {
	if id.Kind != kinds.DrainName {
		return netip.Addr{}, false
	}
	d, err := lb.ParseDrain(id.Key)
	return d.Addr, err == nil
}

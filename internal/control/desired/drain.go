package desired

import (
	"net/netip"
	"slices"

	"loxilb/internal/control/store"
	"loxilb/internal/kinds"
	"loxilb/internal/lb"
)

// Drains is the table of endpoints that take no new connections.
type Drains struct{ *store.Table[lb.Drain] }

// Weigh returns the service with weight 0 for drained endpoints.
func (d *Drains) Weigh(snapshot *store.Snapshot, s lb.Service) lb.Service {
	own := false
	for drain := range d.All(snapshot) {
		for i, e := range s.Endpoints {
			if !drain.Has(e.Addr, e.Port) {
				continue
			}
			if !own {
				s.Endpoints, own = slices.Clone(s.Endpoints), true
			}
			s.Endpoints[i].Weight = 0
		}
	}
	return s
}

// DrainedAddr returns the address of a drain's ID, whether or not the drain exists; false: another
// kind of ID.
func DrainedAddr(id store.ID) (netip.Addr, bool) {
	if id.Kind != kinds.DrainName {
		return netip.Addr{}, false
	}
	d, err := lb.ParseDrain(id.Key)
	return d.Addr, err == nil
}

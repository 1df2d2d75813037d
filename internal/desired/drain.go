package desired

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"loxilb/internal/lb"
	"loxilb/internal/store"
)

// DrainKind is the name of the kind, as messages and journals have it: an endpoint that takes no new connections.
const DrainKind = "drain"

// maxDrains bounds them: each service that is applied is compared with all.
const maxDrains = 1024

// Drains is the table of endpoints that take no new connections.
type Drains struct{ *store.Table[lb.Drain] }

func newDrains() *Drains {
	d := &Drains{}
	d.Table = store.NewTable(store.Kind[lb.Drain]{
		Name: DrainKind,
		Key:  lb.Drain.Key,
		Equal: func(a, b lb.Drain) bool {
			return a.Key() == b.Key() && a.Rate == b.Rate && a.Deadline.Equal(b.Deadline)
		},
		Validate: lb.Drain.Validate,
		Format:   1,
		Encode: func(d lb.Drain) (int, []byte, error) {
			d.Deadline = d.Deadline.UTC()
			b, err := json.Marshal(d)
			return 1, b, err
		},
		Decode: func(_ int, object []byte) (d lb.Drain, err error) {
			err = store.DecodeStrict(object, &d)
			d.Deadline = lb.Steady(d.Deadline)
			return d, err
		},
		Check: func(before, after *store.Snapshot, _ []store.ID) error {
			if n := d.Len(after); n > maxDrains && n > d.Len(before) {
				return fmt.Errorf("a total of %d endpoints that are drained %w of %d", n, store.ErrLimit, maxDrains)
			}
			return nil
		},
	})
	return d
}

// Weigh is the service with weight 0 for endpoints that are drained.
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

// Of is the drain of an endpoint; of two, of its address and of its port, the one whose deadline comes first.
func (d *Drains) Of(snapshot *store.Snapshot, e lb.Endpoint) (found lb.Drain, drained bool) {
	for drain := range d.All(snapshot) {
		if !drain.Has(e.Addr, e.Port) {
			continue
		}
		if !drained || !drain.Deadline.IsZero() && (found.Deadline.IsZero() || drain.Deadline.Before(found.Deadline)) {
			found = drain
		}
		drained = true
	}
	return found, drained
}

// DrainedAddr is the address that a drain of this ID is about, whether or not it is there; false: it is of another kind.
func DrainedAddr(id store.ID) (netip.Addr, bool) {
	if id.Kind != DrainKind {
		return netip.Addr{}, false
	}
	d, err := lb.ParseDrain(id.Key)
	return d.Addr, err == nil
}

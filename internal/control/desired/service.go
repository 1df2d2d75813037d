package desired

import (
	"encoding/binary"
	"iter"
	"net/netip"
	"slices"

	"loxilb/internal/control/store"
	"loxilb/internal/kinds"
	"loxilb/internal/lb"
)

// The indexes of services.
const (
	byName      = "name"      // services by name
	bySecondary = "secondary" // services by sortKey of their additional keys
	byRange     = "range"     // services with a range of ports, by sortPrefixOfVIP
	byHelper    = "helper"    // services with a helper, by its word
)

// The totals of services.
const (
	endpointTotal = iota
	sourceTotal
	secondaryTotal
	rangeTotal
)

// Services is the table of services.
type Services struct{ store.Table[lb.Service] }

func newServices(admit Admission) *Services {
	s, kind := &Services{}, storeKind(kinds.Service())
	kind.Sort = parseSortKey
	kind.Bare = "service"
	kind.Indexes = []store.Index[lb.Service]{
		{Name: byName, Values: func(s lb.Service) []string {
			if s.Name == "" {
				return nil
			}
			return []string{s.Name}
		}},
		{Name: bySecondary, Values: func(s lb.Service) []string {
			var list []string
			for _, k := range s.AdditionalKeys() {
				list = append(list, sortKey(k))
			}
			return list
		}},
		{Name: byRange, Values: func(s lb.Service) []string {
			if s.PortMax == 0 {
				return nil
			}
			return []string{sortPrefixOfVIP(s.VIP)}
		}},
		{Name: byHelper, Values: helperValues},
	}
	kind.Totals = []func(lb.Service) int{
		endpointTotal:  func(s lb.Service) int { return len(s.Endpoints) },
		sourceTotal:    func(s lb.Service) int { return len(s.Sources) + len(s.Denied) },
		secondaryTotal: func(s lb.Service) int { return len(s.AdditionalVIPs()) },
		rangeTotal:     func(s lb.Service) int { return int(min(s.PortMax, 1)) },
	}
	kind.Check = func(before, after *store.Snapshot, changed []store.ID) error {
		if err := s.check(before, after, changed); err != nil || admit == nil {
			return err
		}
		return admit(s.At(before), s.At(after), ServiceKeys(changed))
	}
	s.Table = store.NewTable(kind)
	return s
}

// ServiceID returns the ID of a service.
func ServiceID(k lb.Key) store.ID { return store.ID{Kind: kinds.ServiceName, Key: k.String()} }

// ServiceKey is the inverse of ServiceID. It returns false for the ID of another kind.
func ServiceKey(id store.ID) (lb.Key, bool) {
	if id.Kind != kinds.ServiceName {
		return lb.Key{}, false
	}
	k, err := lb.ParseKey(id.Key)
	return k, err == nil
}

// ServiceKeys returns the keys of the services among objects, in order.
func ServiceKeys(ids []store.ID) []lb.Key {
	var keys []lb.Key
	for _, id := range ids {
		if k, ok := ServiceKey(id); ok {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, lb.Key.Compare)
	return keys
}

// Get returns the service with a key. The result shares memory with the store: do not change it.
func (s *Services) Get(v store.View, k lb.Key) (lb.Service, bool) {
	return s.GetSorted(v, sortKey(k))
}

// Shared returns a service without copying it, and its version; nil if there is none. The service
// belongs to the store: do not change it.
func (s *Services) Shared(v store.View, k lb.Key) (*lb.Service, uint64) {
	service, meta := s.Table.Shared(v, sortKey(k))
	return service, meta.Version
}

// Owner returns the owner of a service.
func (s *Services) Owner(v store.View, k lb.Key) (string, bool) {
	m, ok := s.Meta(v, k.String())
	return m.Owner, ok
}

// Put creates a service, or replaces the one with its key. It refuses an invalid service, a range
// of ports that overlaps another one (*lb.FieldError), and a service of another owner
// (store.ErrOwner). Checks of the whole state run at the end of the transaction.
func (s *Services) Put(tx *store.Tx, one lb.Service) error {
	if err := s.Table.Put(tx, one); err != nil {
		return err
	}
	return s.checkOverlap(tx, &one) // Services.check repeats it, since the transaction may continue
}

// Delete removes a service. It returns store.ErrNotFound if there is none, store.ErrOwner if it has
// another owner.
func (s *Services) Delete(tx *store.Tx, k lb.Key) error { return tx.Delete(ServiceID(k)) }

// ByName returns the services with a name, ordered by key: the ports of an application share its
// name. There are none for "".
func (s *Services) ByName(v store.View, name string) []lb.Service {
	if name == "" {
		return nil
	}
	return slices.Collect(s.Find(v, byName, name))
}

// Endpoints returns the number of endpoints of all services together.
func (s *Services) Endpoints(at *store.Snapshot) int { return s.Total(at, endpointTotal) }

// At returns the services of a view, for code that must not see other views.
func (s *Services) At(v store.View) ServicesAt { return ServicesAt{s, v} }

// ServicesAt has the services of a view.
type ServicesAt struct {
	services *Services
	view     store.View
}

// Get returns the service with a key.
func (a ServicesAt) Get(k lb.Key) (lb.Service, bool) { return a.services.Get(a.view, k) }

// All yields the services in the order of their keys.
func (a ServicesAt) All() iter.Seq[lb.Service] { return a.services.All(a.view) }

// Reach is Services.Reach.
func (a ServicesAt) Reach(k lb.Key) (lb.Service, bool) { return a.services.Reach(a.view, k) }

// HasVIP is Services.HasVIP.
func (a ServicesAt) HasVIP(vip netip.Addr) bool { return a.services.HasVIP(a.view, vip) }

// check refuses changed services that exceed a limit, or conflict with others.
func (s *Services) check(before, after *store.Snapshot, changed []store.ID) error {
	if err := s.checkTotals(before, after); err != nil {
		return err
	}
	keys := ServiceKeys(changed)
	put := make([]lb.Service, 0, len(keys))
	for _, k := range keys {
		if one, ok := s.Get(after, k); ok {
			put = append(put, one)
		}
	}
	for i := range put {
		if err := s.checkOverlap(after, &put[i]); err != nil {
			return err
		}
		if err := s.checkSecondary(after, &put[i]); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(put, func(s lb.Service) bool { return s.Helper == lb.HelperTFTP }) {
		return s.checkTFTP(before, after)
	}
	return nil
}

// checkTotals refuses growth over a limit. A state that is over a limit already may shrink.
func (s *Services) checkTotals(before, after *store.Snapshot) error {
	for _, t := range [...]store.Total{
		{What: "services", Before: s.Len(before), After: s.Len(after), Limit: lb.MaxServices},
		{What: "endpoints", Before: s.Endpoints(before), After: s.Endpoints(after), Limit: lb.MaxEndpoints},
		{What: "sources", Before: s.Total(before, sourceTotal), After: s.Total(after, sourceTotal), Limit: lb.MaxSources},
	} {
		if err := t.Check(); err != nil {
			return err
		}
	}
	return nil
}

// ranges yields the services with a range of ports at an address, each with its key there.
func (s *Services) ranges(v store.View, vip netip.Addr) iter.Seq2[lb.Key, lb.Service] {
	return func(yield func(lb.Key, lb.Service) bool) {
		if s.isUnused(v, rangeTotal) {
			return
		}
		for one := range s.Find(v, byRange, sortPrefixOfVIP(vip)) {
			if !yield(one.Key, one) {
				return
			}
		}
		if s.isUnused(v, secondaryTotal) {
			return
		}
		for one := range s.FindPrefix(v, bySecondary, sortPrefixOfVIP(vip)) {
			at := one.Key
			at.VIP = vip
			if at.PortMax != 0 && !yield(at, one) {
				return
			}
		}
	}
}

// getExact returns the service that has this key, at its VIP or at an additional one.
func (s *Services) getExact(v store.View, k lb.Key) (lb.Service, bool) {
	if one, ok := s.Get(v, k); ok {
		return one, true
	}
	if s.isUnused(v, secondaryTotal) {
		return lb.Service{}, false
	}
	for one := range s.Find(v, bySecondary, sortKey(k)) {
		return one, true
	}
	return lb.Service{}, false
}

// isUnused reports whether a total of a snapshot is 0, which saves lookups for unused features. For
// a transaction, which has no totals, it returns false.
func (s *Services) isUnused(v store.View, total int) bool {
	at, ok := v.(*store.Snapshot)
	return ok && s.Total(at, total) == 0
}

func parseSortKey(key string) (string, bool) {
	k, err := lb.ParseKey(key)
	if err != nil {
		return "", false
	}
	return sortKey(k), true
}

// sortKey returns bytes that are ordered like lb.Key.Compare: IP version, 16 bytes of address,
// port, protocol, last port, mark. All results have the same length.
func sortKey(k lb.Key) string {
	vip := k.VIP.As16()
	b := make([]byte, 0, len(vip)+10)
	b = append(b, byte(k.VIP.BitLen()))
	b = append(b, vip[:]...)
	b = binary.BigEndian.AppendUint16(b, k.Port)
	b = append(b, byte(k.Protocol))
	b = binary.BigEndian.AppendUint16(b, k.PortMax)
	return string(binary.BigEndian.AppendUint32(b, k.Mark))
}

// sortPrefixOfVIP returns the common prefix of the sort keys of all keys with a VIP.
func sortPrefixOfVIP(vip netip.Addr) string { return sortKey(lb.Key{VIP: vip})[:1+16] }

package compile

import (
	"net/netip"

	"loxilb/internal/lb"
)

// vipUsers has the services that have VIPs as endpoints, by these VIPs.
type vipUsers struct {
	byVIP map[netip.Addr]map[lb.Key]struct{}
	// endpointCounts counts all endpoints by a hash of their address. A new VIP with count 0 is
	// not yet an endpoint, which saves a search through all services. Hash collisions cost a
	// search.
	endpointCounts map[uint32]uint32
}

func newVIPUsers() *vipUsers {
	return &vipUsers{byVIP: map[netip.Addr]map[lb.Key]struct{}{}, endpointCounts: map[uint32]uint32{}}
}

// addrHash returns the FNV-1a hash.
func addrHash(a netip.Addr) uint32 {
	h := uint32(2166136261)
	for _, b := range a.As16() {
		h = (h ^ uint32(b)) * 16777619
	}
	return h
}

// add records the endpoints of a service of a snapshot.
func (u *vipUsers) add(s Services, service *lb.Service) {
	for _, e := range service.Endpoints {
		u.endpointCounts[addrHash(e.Addr)]++
		if s.HasVIP(e.Addr) {
			u.addVIP(e.Addr, service.Key)
		}
	}
}

// addVIP records that a service uses a VIP.
func (u *vipUsers) addVIP(vip netip.Addr, k lb.Key) {
	list := u.byVIP[vip]
	if list == nil {
		list = map[lb.Key]struct{}{}
		u.byVIP[vip] = list
	}
	list[k] = struct{}{}
}

func (u *vipUsers) remove(service *lb.Service) {
	for _, e := range service.Endpoints {
		h := addrHash(e.Addr)
		if u.endpointCounts[h]--; u.endpointCounts[h] == 0 {
			delete(u.endpointCounts, h)
		}
		if list := u.byVIP[e.Addr]; list != nil {
			delete(list, service.Key)
			if len(list) == 0 {
				delete(u.byVIP, e.Addr)
			}
		}
	}
}

// usersOfNewVIPs returns the services that have an address as an endpoint that a change makes a
// VIP. It visits all services if there is such an endpoint.
func (u *vipUsers) usersOfNewVIPs(before, after Snapshot, changed []lb.Key) map[netip.Addr][]lb.Key {
	var newUsers map[netip.Addr][]lb.Key
	for _, k := range changed {
		s, ok := after.Get(k)
		if !ok {
			continue
		}
		for vip := range vipsOf(&s) {
			if u.endpointCounts[addrHash(vip)] > 0 && !before.HasVIP(vip) {
				if newUsers == nil {
					newUsers = map[netip.Addr][]lb.Key{}
				}
				newUsers[vip] = nil
			}
		}
	}
	if newUsers == nil {
		return nil
	}
	for s := range before.All() {
		for _, e := range s.Endpoints {
			if list, ok := newUsers[e.Addr]; ok && (len(list) == 0 || list[len(list)-1] != s.Key) {
				newUsers[e.Addr] = append(list, s.Key)
			}
		}
	}
	return newUsers
}

// affected returns the changed services, and the services that lead to one of them before or after
// the change, without duplicates.
func (u *vipUsers) affected(before, after Snapshot, changed []lb.Key, newUsers map[netip.Addr][]lb.Key) []lb.Key {
	in := make(map[lb.Key]bool, len(changed))
	keys := make([]lb.Key, 0, len(changed))
	add := func(k lb.Key) {
		if !in[k] {
			in[k] = true
			keys = append(keys, k)
		}
	}
	for _, k := range changed {
		add(k)
	}
	seen := map[netip.Addr]bool{}
	for i := 0; i < len(keys); i++ {
		for _, snapshot := range []Snapshot{before, after} {
			s, ok := snapshot.Get(keys[i])
			if !ok {
				continue
			}
			for vip := range vipsOf(&s) {
				if seen[vip] {
					continue
				}
				seen[vip] = true
				for k := range u.byVIP[vip] {
					add(k)
				}
				for _, k := range newUsers[vip] {
					add(k)
				}
			}
		}
	}
	return keys
}

// update updates the users from snapshot before to after.
func (u *vipUsers) update(before, after Snapshot, changed []lb.Key, newUsers map[netip.Addr][]lb.Key) {
	for vip, list := range newUsers {
		for _, k := range list {
			u.addVIP(vip, k)
		}
	}
	for _, k := range changed {
		if s, ok := before.Get(k); ok {
			u.remove(&s)
			for vip := range vipsOf(&s) {
				if !after.HasVIP(vip) {
					delete(u.byVIP, vip)
				}
			}
		}
	}
	for _, k := range changed {
		if s, ok := after.Get(k); ok {
			u.add(after, &s)
		}
	}
}

// vipsOf yields all VIPs of a service.
func vipsOf(s *lb.Service) func(yield func(netip.Addr) bool) {
	return func(yield func(netip.Addr) bool) {
		if !yield(s.VIP) {
			return
		}
		for _, a := range s.AdditionalVIPs() {
			if !yield(a) {
				return
			}
		}
	}
}

package compile

import (
	"net/netip"

	"loxilb/internal/lb"
)

// vipUsers are the services that have VIPs of other services as endpoints, by these VIPs.
type vipUsers struct {
	byVIP map[netip.Addr]map[lb.Key]struct{}
	// named counts endpoints by a hash of their address, VIPs or not: most new VIPs are no
	// endpoints, and need no search. A hash collision rarely costs a walk over all services.
	named map[uint32]uint32
}

func newUsers() *vipUsers {
	return &vipUsers{byVIP: map[netip.Addr]map[lb.Key]struct{}{}, named: map[uint32]uint32{}}
}

// addrHash returns the FNV-1a hash.
func addrHash(a netip.Addr) uint32 {
	h := uint32(2166136261)
	for _, b := range a.As16() {
		h = (h ^ uint32(b)) * 16777619
	}
	return h
}

// add enters a service of a snapshot.
func (u *vipUsers) add(s Services, service *lb.Service) {
	for _, e := range service.Endpoints {
		u.named[addrHash(e.Addr)]++
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
		if u.named[h]--; u.named[h] == 0 {
			delete(u.named, h)
		}
		if list := u.byVIP[e.Addr]; list != nil {
			delete(list, service.Key)
			if len(list) == 0 {
				delete(u.byVIP, e.Addr)
			}
		}
	}
}

// newVIPUsers lists the services that already had a VIP as an endpoint that a change adds. It costs
// a walk over all services if an endpoint has such an address.
func (u *vipUsers) newVIPUsers(before, after Snapshot, changed []lb.Key) map[netip.Addr][]lb.Key {
	var fresh map[netip.Addr][]lb.Key
	for _, k := range changed {
		s, ok := after.Get(k)
		if !ok {
			continue
		}
		for vip := range vipsOf(&s) {
			if u.named[addrHash(vip)] > 0 && !before.HasVIP(vip) {
				if fresh == nil {
					fresh = map[netip.Addr][]lb.Key{}
				}
				fresh[vip] = nil
			}
		}
	}
	if fresh == nil {
		return nil
	}
	for s := range before.All() {
		for _, e := range s.Endpoints {
			if list, ok := fresh[e.Addr]; ok && (len(list) == 0 || list[len(list)-1] != s.Key) {
				fresh[e.Addr] = append(list, s.Key)
			}
		}
	}
	return fresh
}

// affected returns the changed services and the services that lead to one of them, before or after
// the change; each once.
func (u *vipUsers) affected(before, after Snapshot, changed []lb.Key, fresh map[netip.Addr][]lb.Key) []lb.Key {
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
				for _, k := range fresh[vip] {
					add(k)
				}
			}
		}
	}
	return keys
}

// update updates the record from before to after.
func (u *vipUsers) update(before, after Snapshot, changed []lb.Key, fresh map[netip.Addr][]lb.Key) {
	for vip, list := range fresh {
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

// vipsOf returns a service's VIPs, including secondary ones.
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

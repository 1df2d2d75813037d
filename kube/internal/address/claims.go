package address

import (
	"maps"
	"math"
	"net/netip"
	"slices"
)

// formerClaim is a removed claim, and its position among the service's addresses.
type formerClaim struct {
	claim
	position int
}

// claimOf returns the claim of a service to an address that it got for a pool.
func claimOf(r *Request, pool string) claim {
	return claim{namespace: r.Namespace, key: r.Key, pool: pool, exclusive: r.Exclusive, ports: slices.Clone(r.Ports)}
}

// addClaim adds or replaces the claim of a service to an address.
func (a *Allocator) addClaim(service string, c netip.Addr, added claim) {
	u := a.used[c]
	if u == nil {
		u = &usedAddress{ports: make(map[Port]string, len(added.ports)), claims: map[string]claim{}}
		a.used[c] = u
	}
	a.removeClaim(u, service)
	for _, p := range added.ports {
		if _, exists := u.ports[p]; !exists {
			a.withPort[p]++
		}
		u.ports[p] = service
	}
	if u.claims[service] = added; added.exclusive {
		u.exclusive++
	}
	if !slices.Contains(a.services[service], c) {
		a.services[service] = append(a.services[service], c)
	}
}

// removeClaim removes the claim of a service to an address, but not the address from the service's
// list.
func (a *Allocator) removeClaim(u *usedAddress, service string) claim {
	removed := u.claims[service]
	for _, p := range removed.ports {
		if u.ports[p] != service {
			continue
		}
		delete(u.ports, p)
		if a.withPort[p]--; a.withPort[p] == 0 {
			delete(a.withPort, p)
		}
	}
	if delete(u.claims, service); removed.exclusive {
		u.exclusive--
	}
	return removed
}

// removeClaims removes all claims of a service, and returns them by address. The caller must pass
// them to updateFirstFree after all other changes.
func (a *Allocator) removeClaims(service string) map[netip.Addr]formerClaim {
	former := make(map[netip.Addr]formerClaim, len(a.services[service]))
	for position, c := range a.services[service] {
		u := a.used[c]
		former[c] = formerClaim{a.removeClaim(u, service), position}
		if len(u.claims) == 0 {
			delete(a.used, c)
		}
	}
	delete(a.services, service)
	return former
}

// updateFirstFree makes searches find the former addresses of a service that are free now.
func (a *Allocator) updateFirstFree(former map[netip.Addr]formerClaim) {
	for c := range former {
		if a.used[c] != nil {
			continue
		}
		for rng, first := range a.firstFree {
			if rng.contains(c) && c.Less(first) {
				a.firstFree[rng] = c
			}
		}
	}
}

// restore adds removed claims of a service again.
func (a *Allocator) restore(service string, former map[netip.Addr]formerClaim) {
	for _, c := range inOrder(former) {
		a.addClaim(service, c, former[c].claim)
	}
}

// inOrder returns the addresses of removed claims in the order that the service had.
func inOrder(former map[netip.Addr]formerClaim) []netip.Addr {
	list := slices.Collect(maps.Keys(former))
	slices.SortFunc(list, func(x, y netip.Addr) int { return former[x].position - former[y].position })
	return list
}

// Release takes all addresses from a service, and reports whether it had any.
func (a *Allocator) Release(service string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	former := a.removeClaims(service)
	a.updateFirstFree(former)
	return len(former) > 0
}

// Of returns the addresses of a service.
func (a *Allocator) Of(service string) []netip.Addr {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.services[service])
}

// IsShared reports whether several services have an address.
func (a *Allocator) IsShared(c netip.Addr) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	u := a.used[c]
	return u != nil && len(u.claims) > 1
}

// Usage counts addresses.
type Usage struct{ Total, Used int64 }

// Free returns the number of unused addresses.
func (u Usage) Free() int64 { return u.Total - u.Used }

// PoolUsage is the state of a pool.
type PoolUsage struct {
	IPv4, IPv6 Usage
	Services   int // number of services with an address of the pool
}

// Usage returns the state of the pool with this name.
func (a *Allocator) Usage(name string) (u PoolUsage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.IndexFunc(a.pools, func(p Pool) bool { return p.Name == name })
	if i < 0 {
		return u
	}
	for _, r := range a.pools[i].Ranges {
		family := &u.IPv4
		if r.First.Is6() {
			family = &u.IPv6
		}
		family.Total += min(r.size(), math.MaxInt64-family.Total)
	}
	if a.pools[i].Problem != "" {
		return u
	}
	a.countReserved(&a.pools[i], &u)
	services := map[string]bool{}
	for c, used := range a.used {
		if !a.pools[i].Contains(c) {
			continue
		}
		if c.Is6() {
			u.IPv6.Used++
		} else {
			u.IPv4.Used++
		}
		for s := range maps.Keys(used.claims) {
			services[s] = true
		}
	}
	u.Services = len(services)
	return u
}

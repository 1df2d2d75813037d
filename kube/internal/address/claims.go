package address

import (
	"maps"
	"math"
	"net/netip"
	"slices"
)

// claim is a service's share of an address.
type claim struct {
	tenant
	place int // among the addresses of the service
}

func (a *Allocator) claim(r *Request, c netip.Addr, as tenant) {
	as.ports = slices.Clone(r.Ports)
	a.add(r.Service, c, as)
}

func (a *Allocator) add(service string, c netip.Addr, as tenant) {
	h := a.holders[c]
	if h == nil {
		h = &holder{ports: make(map[Port]string, len(as.ports)), services: map[string]tenant{}}
		a.holders[c] = h
	}
	a.leave(h, service)
	for _, p := range as.ports {
		if _, there := h.ports[p]; !there {
			a.withPort[p]++
		}
		h.ports[p] = service
	}
	if h.services[service] = as; as.alone {
		h.alone++
	}
	if !slices.Contains(a.services[service], c) {
		a.services[service] = append(a.services[service], c)
	}
}

// leave removes a service from an address. The service's list of addresses stays.
func (a *Allocator) leave(h *holder, service string) tenant {
	was := h.services[service]
	for _, p := range was.ports {
		if h.ports[p] != service {
			continue
		}
		delete(h.ports, p)
		if a.withPort[p]--; a.withPort[p] == 0 {
			delete(a.withPort, p)
		}
	}
	if delete(h.services, service); was.alone {
		h.alone--
	}
	return was
}

// release takes all addresses from a service, and returns its former claims. The caller must pass
// these to freed after all other changes.
func (a *Allocator) release(service string) map[netip.Addr]claim {
	had := make(map[netip.Addr]claim, len(a.services[service]))
	for place, c := range a.services[service] {
		h := a.holders[c]
		had[c] = claim{a.leave(h, service), place}
		if len(h.services) == 0 {
			delete(a.holders, c)
		}
	}
	delete(a.services, service)
	return had
}

// freed lets searches find the former addresses of a service that no service has now.
func (a *Allocator) freed(had map[netip.Addr]claim) {
	for c := range had {
		if a.holders[c] != nil {
			continue
		}
		for rng, lowest := range a.lowest {
			if rng.contains(c) && c.Less(lowest) {
				a.lowest[rng] = c
			}
		}
	}
}

func (a *Allocator) restore(service string, had map[netip.Addr]claim) {
	for _, c := range a.order(had) {
		a.add(service, c, had[c].tenant)
	}
}

// Release takes all addresses from a service, and reports whether it had any.
func (a *Allocator) Release(service string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	had := a.release(service)
	a.freed(had)
	return len(had) > 0
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
	h := a.holders[c]
	return h != nil && len(h.services) > 1
}

// Usage counts addresses.
type Usage struct{ Total, Used int64 }

// Free returns how many are left.
func (u Usage) Free() int64 { return u.Total - u.Used }

// PoolUsage is the state of a pool.
type PoolUsage struct {
	IPv4, IPv6 Usage
	Services   int // that have an address of it
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
	if a.pools[i].Conflict != "" {
		return u
	}
	a.countReserved(&a.pools[i], &u)
	services := map[string]bool{}
	for c, h := range a.holders {
		if !a.pools[i].Contains(c) {
			continue
		}
		if c.Is6() {
			u.IPv6.Used++
		} else {
			u.IPv4.Used++
		}
		for s := range maps.Keys(h.services) {
			services[s] = true
		}
	}
	u.Services = len(services)
	return u
}

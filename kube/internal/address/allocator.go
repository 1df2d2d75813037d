package address

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
)

// Port is a port of a protocol, such as 80 of TCP.
type Port struct {
	Protocol string
	Number   int32
}

func (p Port) String() string { return fmt.Sprintf("%d/%s", p.Number, p.Protocol) }

// Request says what a service needs. Slots are its addresses, in order.
type Request struct {
	Service, Namespace string // Service is NAMESPACE/NAME
	Labels             map[string]string
	Ports              []Port
	Key                string // services with the same one share addresses of pools with ShareByKey
	Slots              []Slot
}

// Slot asks for one address.
type Slot struct {
	IPv6      bool
	Address   netip.Addr // this one; the zero value: any
	Pool      string     // from this pool; empty: any that is for such services
	Optional  bool       // the service works without it
	Secondary bool       // a further address of the same family
}

func (s Slot) family() string {
	if s.IPv6 {
		return "IPv6"
	}
	return "IPv4"
}

// Reasons of an Error, as conditions spell them.
const (
	ReasonExhausted = "AddressesExhausted"
	ReasonConflict  = "AddressConflict"
	ReasonNoPool    = "NoPool"
	ReasonInvalid   = "InvalidAddress"
)

// Error is why a service has not got its addresses.
type Error struct{ Reason, Message string }

func (e *Error) Error() string { return e.Message }

// Allocator knows which service has which addresses. It is safe for concurrent use.
type Allocator struct {
	mu       sync.Mutex
	pools    []Pool
	holders  map[netip.Addr]*holder
	services map[string][]netip.Addr
}

// holder is an address in use.
type holder struct {
	ports    map[Port]string   // by whom
	services map[string]string // their sharing keys
}

// New returns an allocator without pools.
func New() *Allocator {
	return &Allocator{holders: map[netip.Addr]*holder{}, services: map[string][]netip.Addr{}}
}

// SetPools replaces the pools. Services keep their addresses, whatever pools there are.
func (a *Allocator) SetPools(pools []Pool) {
	sorted := slices.Clone(pools)
	slices.SortStableFunc(sorted, func(p, q Pool) int { return int(q.Priority) - int(p.Priority) })
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pools = sorted
}

// Allocate gives a service its addresses. Those that it has, or that its status lists as current,
// stay as far as the request allows. On an error the service keeps what it had. Missing optional
// addresses are skipped, and named by the second result.
func (a *Allocator) Allocate(r *Request, current []netip.Addr) (addresses []netip.Addr, skipped *Error, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.release(r.Service)
	if len(before) > 0 {
		current = a.order(before)
	}
	for _, s := range r.Slots {
		got, e := a.fill(r, s, current, addresses)
		switch {
		case e == nil:
			addresses = append(addresses, got)
			a.claim(r, got)
		case s.Optional:
			skipped = e
		default:
			a.release(r.Service)
			a.restore(r.Service, before)
			return nil, nil, e
		}
	}
	return addresses, skipped, nil
}

// Adopt gives a service the addresses that its status lists, whatever pools say: clients use them.
// Addresses with ports that another service has are left out.
func (a *Allocator) Adopt(r *Request, addresses []netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range addresses {
		if a.portConflict(r, c) == nil {
			a.claim(r, c)
		}
	}
}

// order returns the addresses of a released service in the order in which it had them.
func (a *Allocator) order(before map[netip.Addr]claim) []netip.Addr {
	list := slices.Collect(maps.Keys(before))
	slices.SortFunc(list, func(x, y netip.Addr) int { return before[x].place - before[y].place })
	return list
}

// fill chooses the address of one slot.
func (a *Allocator) fill(r *Request, s Slot, current, given []netip.Addr) (netip.Addr, *Error) {
	if s.Address.IsValid() {
		if slices.Contains(given, s.Address) {
			return netip.Addr{}, &Error{ReasonInvalid, fmt.Sprintf("address %s is given twice", s.Address)}
		}
		return s.Address, a.refusal(r, s.Address, true)
	}
	for _, c := range current {
		if c.Is6() != s.IPv6 || slices.Contains(given, c) || !a.suits(s, c) {
			continue
		}
		return c, a.portConflict(r, c) // a published address never moves by itself
	}
	return a.choose(r, s, given)
}

// suits reports whether an address may stay in a slot: it comes from the pool that the slot names.
// An address of no pool stays while none is named.
func (a *Allocator) suits(s Slot, c netip.Addr) bool {
	if s.Pool == "" {
		return true
	}
	p := a.poolOf(c)
	return p != nil && p.Name == s.Pool
}

// choose takes the first address that can be shared, or is free, of the first pool that has one.
func (a *Allocator) choose(r *Request, s Slot, given []netip.Addr) (netip.Addr, *Error) {
	tried, named := []string{}, false
	for i := range a.pools {
		p := &a.pools[i]
		named = named || p.Name == s.Pool
		if s.Pool != "" && p.Name != s.Pool || s.Pool == "" && !p.Auto || !p.selects(r) || !p.has(s.IPv6) {
			continue
		}
		if p.Conflict != "" {
			continue
		}
		tried = append(tried, p.Name)
		if got, ok := a.search(r, p, s.IPv6, given); ok {
			return got, nil
		}
	}
	switch {
	case len(tried) > 0:
		return netip.Addr{}, &Error{ReasonExhausted, fmt.Sprintf("no %s address is free in %s", s.family(), quoted(tried))}
	case named:
		return netip.Addr{}, &Error{ReasonNoPool, fmt.Sprintf("pool %q has no %s addresses for this service", s.Pool, s.family())}
	case s.Pool != "":
		return netip.Addr{}, &Error{ReasonNoPool, fmt.Sprintf("pool %q does not exist", s.Pool)}
	}
	return netip.Addr{}, &Error{ReasonNoPool, fmt.Sprintf("no pool has %s addresses for this service", s.family())}
}

// search finds an address of a pool: one in use that may be shared, otherwise a free one.
func (a *Allocator) search(r *Request, p *Pool, six bool, given []netip.Addr) (netip.Addr, bool) {
	share := p.Sharing == ShareAlways || p.Sharing == ShareByKey && r.Key != ""
	var free netip.Addr
	for _, rng := range p.Ranges {
		if rng.First.Is6() != six {
			continue
		}
		for c := rng.First; rng.contains(c); c = c.Next() {
			if a.holders[c] == nil {
				if !free.IsValid() {
					free = c
				}
				if !share || !a.usedAfter(rng, c) {
					break
				}
			} else if share && !slices.Contains(given, c) && a.refusal(r, c, false) == nil {
				return c, true
			}
		}
		if free.IsValid() && !share {
			return free, true
		}
	}
	return free, free.IsValid()
}

// usedAfter reports whether a later address of a range is in use. It bounds the search for an
// address to share, in ranges as large as an IPv6 network.
func (a *Allocator) usedAfter(r Range, c netip.Addr) bool {
	for used := range a.holders {
		if r.contains(used) && c.Less(used) {
			return true
		}
	}
	return false
}

// refusal returns why a service cannot have an address, or nil. wanted: the address was asked for.
func (a *Allocator) refusal(r *Request, c netip.Addr, wanted bool) *Error {
	h := a.holders[c]
	if h == nil {
		return nil
	}
	if taken := a.portConflict(r, c); taken != nil {
		return taken
	}
	p := a.poolOf(c)
	if p == nil && wanted || p != nil && p.Sharing == ShareAlways {
		return nil
	}
	for other, key := range h.services {
		if other == r.Service {
			continue
		}
		if p == nil || p.Sharing != ShareByKey || r.Key == "" || key != r.Key {
			return &Error{ReasonConflict, fmt.Sprintf("address %s belongs to service %s, and they have no common sharing key", c, other)}
		}
	}
	return nil
}

func (a *Allocator) portConflict(r *Request, c netip.Addr) *Error {
	h := a.holders[c]
	if h == nil {
		return nil
	}
	for _, port := range r.Ports {
		if other, taken := h.ports[port]; taken && other != r.Service {
			return &Error{ReasonConflict, fmt.Sprintf("port %s of address %s belongs to service %s", port, c, other)}
		}
	}
	return nil
}

func (a *Allocator) poolOf(c netip.Addr) *Pool {
	for i := range a.pools {
		if a.pools[i].Conflict == "" && a.pools[i].Contains(c) {
			return &a.pools[i]
		}
	}
	return nil
}

func (p *Pool) has(six bool) bool {
	return slices.ContainsFunc(p.Ranges, func(r Range) bool { return r.First.Is6() == six })
}

func quoted(names []string) string {
	if len(names) == 1 {
		return fmt.Sprintf("pool %q", names[0])
	}
	return fmt.Sprintf("pools %q", names)
}

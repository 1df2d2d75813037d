package address

import (
	"fmt"
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

// Request describes the addresses that a service needs, in the order of Slots.
type Request struct {
	Service, Namespace string // Service is NAMESPACE/NAME
	Labels             map[string]string
	Ports              []Port
	Key                string // services with the same key share addresses of pools with ShareByKey
	Exclusive          bool   // only nodes with its pods announce its addresses, so it shares none
	Slots              []Slot
}

// Slot asks for one address.
type Slot struct {
	IPv6      bool
	Address   netip.Addr // the requested address; the zero value: any
	Pool      string     // the requested pool; empty: any pool that may serve the service
	Optional  bool       // the service works without it
	Secondary bool       // an additional address of the same family
}

func (s Slot) family() string {
	if s.IPv6 {
		return "IPv6"
	}
	return "IPv4"
}

// Reasons of an Error. Conditions of Services have them, too.
const (
	ReasonExhausted = "AddressesExhausted"
	ReasonConflict  = "AddressConflict"
	ReasonNoPool    = "NoPool"
	ReasonInvalid   = "InvalidAddress"
	ReasonOutside   = "AddressOutsidePool" // only a notice: the service has its addresses
	ReasonShared    = "AddressShared"      // only a notice: see Request.Exclusive
)

// Error reports why a service did not get an address. As a notice, it warns about an address that
// the service has.
type Error struct{ Reason, Message string }

func (e *Error) Error() string { return e.Message }

// Allocator assigns addresses to services. It is safe for concurrent use.
type Allocator struct {
	PoolsOnly bool // services may only request addresses of pools

	mu        sync.Mutex
	pools     []Pool
	reserved  Reserved
	used      map[netip.Addr]*usedAddress
	services  map[string][]netip.Addr
	withPort  map[Port]int         // number of used addresses with a service at this port
	firstFree map[Range]netip.Addr // no lower address of the range is free
}

// usedAddress is an address that services have.
type usedAddress struct {
	ports     map[Port]string  // the service of each port
	claims    map[string]claim // by service
	exclusive int              // number of exclusive claims
}

// claim is the use of an address by one service.
type claim struct {
	namespace string
	key       string // sharing key
	pool      string // pool that the service selected when it got the address
	adopted   bool   // the address is from a status, so pool is unknown
	exclusive bool   // see Request.Exclusive
	ports     []Port // ports of the service
}

// New returns an allocator without pools.
func New() *Allocator {
	return &Allocator{
		used: map[netip.Addr]*usedAddress{}, services: map[string][]netip.Addr{}, withPort: map[Port]int{}, firstFree: map[Range]netip.Addr{},
	}
}

// SetPools replaces the pools. Services keep their addresses, even if no pool has them.
func (a *Allocator) SetPools(pools []Pool) {
	sorted := slices.Clone(pools)
	slices.SortStableFunc(sorted, func(p, q Pool) int { return int(q.Priority) - int(p.Priority) })
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pools = sorted
	clear(a.firstFree)
}

// Allocate assigns addresses to a service. Its present addresses, or those that its status lists as
// current, stay if the request allows it. After an error the service keeps its addresses. The
// notice is about a missing optional address, or about an address outside of its pool.
func (a *Allocator) Allocate(r *Request, current []netip.Addr) (addresses []netip.Addr, notice *Error, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	former := a.removeClaims(r.Service)
	defer a.updateFirstFree(former)
	if len(former) > 0 {
		current = inOrder(former)
	}
	for _, s := range r.Slots {
		got, e := a.fill(r, s, holdings{current, former, addresses})
		switch {
		case e == nil:
			addresses = append(addresses, got)
			pool := s.Pool
			if s.Address.IsValid() {
				pool = ""
			} else if notice == nil {
				notice = a.outsideNotice(s, got)
			}
			if other := a.exclusiveConflict(r, got); notice == nil && other != "" {
				notice = &Error{ReasonShared, fmt.Sprintf("address %s also belongs to service %s, and by BGP only nodes with pods announce addresses of Services with the policy Local: these do not serve the other Service unless they have its pods; give one of them another address by staticIP or another pool", got, other)}
			}
			a.addClaim(r.Service, got, claimOf(r, pool))
		case s.Optional:
			notice = e
		default:
			assigned := a.removeClaims(r.Service)
			a.restore(r.Service, former)
			a.updateFirstFree(assigned)
			return nil, nil, e
		}
	}
	return addresses, notice, nil
}

// Adopt assigns the addresses of a status to its service, even if no pool has them: clients use
// them. It omits addresses on which another service has one of the ports.
func (a *Allocator) Adopt(r *Request, addresses []netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range addresses {
		if a.portConflict(r, c) == nil {
			adopted := claimOf(r, "")
			adopted.adopted = true
			a.addClaim(r.Service, c, adopted)
		}
	}
}

// holdings are the addresses that a service has while one of its slots is filled.
type holdings struct {
	current  []netip.Addr // addresses of its status, or its former ones
	former   map[netip.Addr]formerClaim
	assigned []netip.Addr // to earlier slots
}

// fill chooses the address of one slot. A published address never moves by itself: it stays until
// the slot names another pool, even if its pool no longer has it.
func (a *Allocator) fill(r *Request, s Slot, h holdings) (netip.Addr, *Error) {
	if s.Address.IsValid() {
		return s.Address, a.checkRequested(r, s.Address, h)
	}
	for _, mayKeep := range []func(Slot, netip.Addr) bool{a.isInPool, h.keeps} {
		for _, c := range h.current {
			if c.Is6() == s.IPv6 && !slices.Contains(h.assigned, c) && mayKeep(s, c) {
				return c, a.portConflict(r, c)
			}
		}
	}
	return a.choose(r, s, h.assigned)
}

// checkRequested returns why a service cannot have an address that it requests, or nil. A service
// that has the address already keeps it, unless another one has its port or key.
func (a *Allocator) checkRequested(r *Request, c netip.Addr, h holdings) *Error {
	if slices.Contains(h.assigned, c) {
		return &Error{ReasonInvalid, fmt.Sprintf("address %s is given twice", c)}
	}
	has := slices.Contains(h.current, c)
	if why := a.unusable(c, has); why != "" {
		return &Error{ReasonInvalid, why}
	}
	if has {
		return a.sharingConflict(r, c)
	}
	p := a.poolOf(c)
	if p != nil && !p.selects(r) {
		return &Error{ReasonNoPool, fmt.Sprintf("address %s is of pool %q, which is not for this service", c, p.Name)}
	}
	if p == nil && a.PoolsOnly {
		return &Error{ReasonNoPool, fmt.Sprintf("address %s is in no pool, and services may only request addresses of pools", c)}
	}
	if other := a.foreignService(r, c); other != "" {
		return &Error{ReasonConflict, fmt.Sprintf("address %s belongs to service %s of another namespace, and they have no common sharing key", c, other)}
	}
	if other := a.exclusiveConflict(r, c); other != "" {
		return &Error{ReasonConflict, fmt.Sprintf("address %s belongs to service %s: by BGP only nodes with pods announce addresses of Services with the policy Local, so they cannot be shared", c, other)}
	}
	return a.sharingConflict(r, c)
}

// isInPool reports whether an address is of the pool that a slot names, if it names one.
func (a *Allocator) isInPool(s Slot, c netip.Addr) bool {
	if s.Pool == "" {
		return true
	}
	p := a.poolOf(c)
	return p != nil && p.Name == s.Pool
}

// keeps reports whether an address was assigned for the pool that the slot names. For an address
// that only a status lists, the pool is unknown, and a restart must not move it.
func (h *holdings) keeps(s Slot, c netip.Addr) bool {
	former, had := h.former[c]
	return !had || former.adopted || former.pool == s.Pool
}

// outsideNotice returns a notice if an address is not of the slot's pool, or of no pool.
func (a *Allocator) outsideNotice(s Slot, c netip.Addr) *Error {
	p := a.poolOf(c)
	switch {
	case p == nil && s.Pool == "":
		return &Error{ReasonOutside, fmt.Sprintf("address %s is in no pool, and stays until the Service is deleted or selects one", c)}
	case s.Pool != "" && (p == nil || p.Name != s.Pool):
		return &Error{ReasonOutside, fmt.Sprintf("address %s is not in pool %q, and stays until the Service is deleted or selects another pool", c, s.Pool)}
	}
	return nil
}

// choose returns the first address that the service may share, or that is free, of the first pool
// with such an address.
func (a *Allocator) choose(r *Request, s Slot, assigned []netip.Addr) (netip.Addr, *Error) {
	tried, named := []string{}, false
	for i := range a.pools {
		p := &a.pools[i]
		named = named || s.Pool != "" && p.Name == s.Pool
		if s.Pool != "" && p.Name != s.Pool || s.Pool == "" && !p.Auto || !p.selects(r) || !p.has(s.IPv6) {
			continue
		}
		if p.Problem != "" {
			continue
		}
		tried = append(tried, p.Name)
		if got, ok := a.search(r, p, s.IPv6, assigned); ok {
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

// search returns an address of a pool: a used one that the service may share, otherwise a free one.
// It does not visit all addresses: a pool may be as large as an IPv6 network.
func (a *Allocator) search(r *Request, p *Pool, ipv6 bool, assigned []netip.Addr) (netip.Addr, bool) {
	if p.Sharing == ShareAlways || p.Sharing == ShareByKey && r.Key != "" {
		for _, rng := range p.Ranges {
			if c, ok := a.shareable(r, p, rng, assigned); ok && c.Is6() == ipv6 {
				return c, true
			}
		}
	}
	for _, rng := range p.Ranges {
		if c, ok := a.nextFree(rng); ok && c.Is6() == ipv6 {
			return c, true
		}
	}
	return netip.Addr{}, false
}

// shareable returns the lowest used address of a pool's range that a service may share.
func (a *Allocator) shareable(r *Request, p *Pool, rng Range, assigned []netip.Addr) (lowest netip.Addr, ok bool) {
	for _, port := range r.Ports {
		if a.withPort[port] == len(a.used) {
			return lowest, false // the usual case of thousands of services with port 80
		}
	}
	for c, u := range a.used {
		if rng.contains(c) && (!ok || c.Less(lowest)) && u.accepts(r, p.Sharing) && !slices.Contains(assigned, c) && a.reserved.owner(c) == "" {
			lowest, ok = c, true
		}
	}
	return lowest, ok
}

// accepts reports whether a service may share the address. It is faster than sharingConflict, which
// returns the reason.
func (u *usedAddress) accepts(r *Request, sharing Sharing) bool {
	for _, port := range r.Ports {
		if other, taken := u.ports[port]; taken && other != r.Service {
			return false
		}
	}
	if sharing == ShareAlways && !r.Exclusive && u.exclusive == 0 {
		return true
	}
	for other, c := range u.claims {
		if other != r.Service && (r.Exclusive || c.exclusive || sharing != ShareAlways && (r.Key == "" || c.key != r.Key)) {
			return false
		}
	}
	return true
}

// nextFree returns the first free address of a range.
func (a *Allocator) nextFree(rng Range) (netip.Addr, bool) {
	c := rng.First
	if known, ok := a.firstFree[rng]; ok {
		c = known
	}
	for ; rng.contains(c); c = c.Next() {
		if a.used[c] != nil {
			continue
		}
		last, reserved := a.reserved.endOf(c)
		if !reserved {
			break
		}
		c = last
	}
	a.firstFree[rng] = c
	return c, rng.contains(c)
}

// exclusiveConflict returns a service that has an address, if that service or this one is
// exclusive.
func (a *Allocator) exclusiveConflict(r *Request, c netip.Addr) string {
	if u := a.used[c]; u == nil || !r.Exclusive && u.exclusive == 0 {
		return ""
	}
	return a.used[c].otherService(r.Service, func(c claim) bool { return r.Exclusive || c.exclusive })
}

// foreignService returns a service of another namespace that has an address outside of all pools,
// without the sharing key of this one. Without a pool's permission, no namespace may take over
// ports of an address of another one.
func (a *Allocator) foreignService(r *Request, c netip.Addr) string {
	if a.poolOf(c) != nil {
		return ""
	}
	return a.used[c].otherService(r.Service, func(c claim) bool {
		return c.namespace != r.Namespace && (r.Key == "" || c.key != r.Key)
	})
}

// otherService returns the first other service with a property, by name: if messages named a
// different service each time, statuses would change forever. It returns "" if there is none.
func (u *usedAddress) otherService(than string, is func(claim) bool) (first string) {
	if u == nil {
		return ""
	}
	for name, c := range u.claims {
		if name != than && is(c) && (first == "" || name < first) {
			first = name
		}
	}
	return first
}

// sharingConflict returns why a service cannot share an address with its other services, or nil.
// Any service may request an address outside of all pools.
func (a *Allocator) sharingConflict(r *Request, c netip.Addr) *Error {
	u := a.used[c]
	if u == nil {
		return nil
	}
	if taken := a.portConflict(r, c); taken != nil {
		return taken
	}
	p := a.poolOf(c)
	if p == nil || p.Sharing == ShareAlways {
		return nil
	}
	noCommonKey := func(c claim) bool { return p.Sharing != ShareByKey || r.Key == "" || c.key != r.Key }
	if other := u.otherService(r.Service, noCommonKey); other != "" {
		return &Error{ReasonConflict, fmt.Sprintf("address %s belongs to service %s, and they have no common sharing key", c, other)}
	}
	return nil
}

func (a *Allocator) portConflict(r *Request, c netip.Addr) *Error {
	u := a.used[c]
	if u == nil {
		return nil
	}
	for _, port := range r.Ports {
		if other, taken := u.ports[port]; taken && other != r.Service {
			return &Error{ReasonConflict, fmt.Sprintf("port %s of address %s belongs to service %s", port, c, other)}
		}
	}
	return nil
}

func (a *Allocator) poolOf(c netip.Addr) *Pool {
	for i := range a.pools {
		if a.pools[i].Problem == "" && a.pools[i].Contains(c) {
			return &a.pools[i]
		}
	}
	return nil
}

func (p *Pool) has(ipv6 bool) bool {
	return slices.ContainsFunc(p.Ranges, func(r Range) bool { return r.First.Is6() == ipv6 })
}

func quoted(names []string) string {
	if len(names) == 1 {
		return fmt.Sprintf("pool %q", names[0])
	}
	return fmt.Sprintf("pools %q", names)
}

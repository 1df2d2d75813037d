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

// Request is the needs of a service. Slots are its addresses, in order.
type Request struct {
	Service, Namespace string // Service is NAMESPACE/NAME
	Labels             map[string]string
	Ports              []Port
	Key                string // services with the same key share addresses of pools with ShareByKey
	Alone              bool   // only the nodes of its pods announce its addresses, so it shares none
	Slots              []Slot
}

// Slot asks for one address.
type Slot struct {
	IPv6      bool
	Address   netip.Addr // this one; the zero value: any
	Pool      string     // from this pool; empty: any pool for such services
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
	ReasonOutside   = "AddressOutsidePool" // of a notice: the service has its addresses
	ReasonShared    = "AddressShared"      // of a notice: see Request.Alone
)

// Error is why a service has not got its addresses.
type Error struct{ Reason, Message string }

func (e *Error) Error() string { return e.Message }

// Allocator knows which service has which addresses. It is safe for concurrent use.
type Allocator struct {
	PoolsOnly bool // services may only ask for addresses of pools

	mu       sync.Mutex
	pools    []Pool
	reserved Reserved
	holders  map[netip.Addr]*holder
	services map[string][]netip.Addr
	withPort map[Port]int         // numbers of holders that have a port
	lowest   map[Range]netip.Addr // of a range: addresses below are not free
}

// holder is an address in use.
type holder struct {
	ports    map[Port]string // the service of each port
	services map[string]tenant
	alone    int // services that share none: see Request.Alone
}

// tenant is a service that has an address.
type tenant struct {
	namespace string
	key       string // its sharing key
	pool      string // that it selected when it got the address
	adopted   bool   // the address is from a status, so pool is not known
	alone     bool   // see Request.Alone
	ports     []Port // of the service
}

// New returns an allocator without pools.
func New() *Allocator {
	return &Allocator{
		holders: map[netip.Addr]*holder{}, services: map[string][]netip.Addr{}, withPort: map[Port]int{}, lowest: map[Range]netip.Addr{},
	}
}

// SetPools replaces the pools. Services keep their addresses, whatever pools there are.
func (a *Allocator) SetPools(pools []Pool) {
	sorted := slices.Clone(pools)
	slices.SortStableFunc(sorted, func(p, q Pool) int { return int(q.Priority) - int(p.Priority) })
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pools = sorted
	clear(a.lowest)
}

// Allocate gives a service its addresses. Addresses that it has, or that its status lists as
// current, stay if the request allows it. After an error the service keeps its addresses. The
// notice is about an optional address that is missing, or an address outside of its pool.
func (a *Allocator) Allocate(r *Request, current []netip.Addr) (addresses []netip.Addr, notice *Error, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.release(r.Service)
	defer a.freed(before)
	if len(before) > 0 {
		current = a.order(before)
	}
	for _, s := range r.Slots {
		got, e := a.fill(r, s, offer{current, before, addresses})
		switch {
		case e == nil:
			addresses = append(addresses, got)
			pool := s.Pool
			if s.Address.IsValid() {
				pool = ""
			} else if notice == nil {
				notice = a.outside(s, got)
			}
			if other := a.apart(r, got); notice == nil && other != "" {
				notice = &Error{ReasonShared, fmt.Sprintf("address %s also belongs to service %s, and by BGP only nodes with pods announce addresses of Services with the policy Local: these do not serve the other Service unless they have its pods; give one of them another address by staticIP or another pool", got, other)}
			}
			a.claim(r, got, tenant{namespace: r.Namespace, key: r.Key, pool: pool, alone: r.Alone})
		case s.Optional:
			notice = e
		default:
			given := a.release(r.Service)
			a.restore(r.Service, before)
			a.freed(given)
			return nil, nil, e
		}
	}
	return addresses, notice, nil
}

// Adopt gives a service the addresses that its status lists, whatever pools say: clients use them.
// Addresses with ports that another service has are left out.
func (a *Allocator) Adopt(r *Request, addresses []netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range addresses {
		if a.portConflict(r, c) == nil {
			a.claim(r, c, tenant{namespace: r.Namespace, key: r.Key, adopted: true, alone: r.Alone})
		}
	}
}

// order returns the addresses of a released service in their former order.
func (a *Allocator) order(before map[netip.Addr]claim) []netip.Addr {
	list := slices.Collect(maps.Keys(before))
	slices.SortFunc(list, func(x, y netip.Addr) int { return before[x].place - before[y].place })
	return list
}

// offer has the addresses that a service has already, when one of its slots is filled.
type offer struct {
	current []netip.Addr // addresses of its status, or its former ones
	had     map[netip.Addr]claim
	given   []netip.Addr // to the slots before
}

// fill chooses the address of one slot. A published address never moves by itself: it stays until
// the slot names another pool, whatever becomes of the pool that it is from.
func (a *Allocator) fill(r *Request, s Slot, o offer) (netip.Addr, *Error) {
	if s.Address.IsValid() {
		if slices.Contains(o.given, s.Address) {
			return netip.Addr{}, &Error{ReasonInvalid, fmt.Sprintf("address %s is given twice", s.Address)}
		}
		has := slices.Contains(o.current, s.Address)
		if why := a.unusable(s.Address, has); why != "" {
			return netip.Addr{}, &Error{ReasonInvalid, why}
		}
		if p := a.poolOf(s.Address); p != nil && !p.selects(r) && !has {
			return netip.Addr{}, &Error{ReasonNoPool, fmt.Sprintf("address %s is of pool %q, which is not for this service", s.Address, p.Name)}
		}
		if a.PoolsOnly && a.poolOf(s.Address) == nil && !has {
			return netip.Addr{}, &Error{ReasonNoPool, fmt.Sprintf("address %s is in no pool, and services may only ask for addresses of pools", s.Address)}
		}
		if other := a.stranger(r, s.Address); other != "" && !has {
			return netip.Addr{}, &Error{ReasonConflict, fmt.Sprintf("address %s belongs to service %s of another namespace, and they have no common sharing key", s.Address, other)}
		}
		if other := a.apart(r, s.Address); other != "" && !has {
			return netip.Addr{}, &Error{ReasonConflict, fmt.Sprintf("address %s belongs to service %s, and by BGP only nodes with pods announce addresses of Services with the policy Local, which share none", s.Address, other)}
		}
		return s.Address, a.refusal(r, s.Address, true)
	}
	for _, may := range []func(Slot, netip.Addr) bool{a.suits, o.stays} {
		for _, c := range o.current {
			if c.Is6() == s.IPv6 && !slices.Contains(o.given, c) && may(s, c) {
				return c, a.portConflict(r, c)
			}
		}
	}
	return a.choose(r, s, o.given)
}

// suits reports whether an address is from the pool that a slot names, if it names one.
func (a *Allocator) suits(s Slot, c netip.Addr) bool {
	if s.Pool == "" {
		return true
	}
	p := a.poolOf(c)
	return p != nil && p.Name == s.Pool
}

// stays reports whether an address was given for the pool that the slot names. Of addresses that
// only a status lists this is not known, and a restart must not move them.
func (o *offer) stays(s Slot, c netip.Addr) bool {
	one, had := o.had[c]
	return !had || one.adopted || one.pool == s.Pool
}

// outside returns a notice if an address is not of the pool that it should be of, or of none.
func (a *Allocator) outside(s Slot, c netip.Addr) *Error {
	p := a.poolOf(c)
	switch {
	case p == nil && s.Pool == "":
		return &Error{ReasonOutside, fmt.Sprintf("address %s is in no pool, and stays until the Service is deleted or selects one", c)}
	case s.Pool != "" && (p == nil || p.Name != s.Pool):
		return &Error{ReasonOutside, fmt.Sprintf("address %s is not in pool %q, and stays until the Service is deleted or selects another pool", c, s.Pool)}
	}
	return nil
}

// choose takes the first address that can be shared, or is free, of the first pool that has one.
func (a *Allocator) choose(r *Request, s Slot, given []netip.Addr) (netip.Addr, *Error) {
	tried, named := []string{}, false
	for i := range a.pools {
		p := &a.pools[i]
		named = named || s.Pool != "" && p.Name == s.Pool
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

// search finds an address of a pool: one in use that may be shared, otherwise a free one. It steps
// from one address in use to the next: a pool may be as large as an IPv6 network, and a Service may
// have asked for its last address.
func (a *Allocator) search(r *Request, p *Pool, six bool, given []netip.Addr) (netip.Addr, bool) {
	if p.Sharing == ShareAlways || p.Sharing == ShareByKey && r.Key != "" {
		for _, rng := range p.Ranges {
			if c, ok := a.shared(r, p, rng, given); ok && c.Is6() == six {
				return c, true
			}
		}
	}
	for _, rng := range p.Ranges {
		if c, ok := a.free(rng); ok && c.Is6() == six {
			return c, true
		}
	}
	return netip.Addr{}, false
}

// shared returns the lowest address in use of a pool's range that a service may share.
func (a *Allocator) shared(r *Request, p *Pool, rng Range, given []netip.Addr) (lowest netip.Addr, ok bool) {
	for _, port := range r.Ports {
		if a.withPort[port] == len(a.holders) {
			return lowest, false // as with thousands of services that all have port 80
		}
	}
	for c, h := range a.holders {
		if rng.contains(c) && (!ok || c.Less(lowest)) && h.takes(r, p.Sharing) && !slices.Contains(given, c) && a.reserved.by(c) == "" {
			lowest, ok = c, true
		}
	}
	return lowest, ok
}

// takes reports whether a service may share the address. refusal says why not, which costs more.
func (h *holder) takes(r *Request, sharing Sharing) bool {
	for _, port := range r.Ports {
		if other, taken := h.ports[port]; taken && other != r.Service {
			return false
		}
	}
	if sharing == ShareAlways && !r.Alone && h.alone == 0 {
		return true
	}
	for other, one := range h.services {
		if other != r.Service && (r.Alone || one.alone || sharing != ShareAlways && (r.Key == "" || one.key != r.Key)) {
			return false
		}
	}
	return true
}

// free returns the first address of a range that nobody has.
func (a *Allocator) free(rng Range) (netip.Addr, bool) {
	c := rng.First
	if known, ok := a.lowest[rng]; ok {
		c = known
	}
	for ; rng.contains(c); c = c.Next() {
		if a.holders[c] != nil {
			continue
		}
		last, reserved := a.reserved.last(c)
		if !reserved {
			break
		}
		c = last
	}
	a.lowest[rng] = c
	return c, rng.contains(c)
}

// apart returns a service that has an address, if one of the two shares none.
func (a *Allocator) apart(r *Request, c netip.Addr) string {
	if h := a.holders[c]; h == nil || !r.Alone && h.alone == 0 {
		return ""
	}
	return a.holders[c].other(r.Service, func(one tenant) bool { return r.Alone || one.alone })
}

// stranger returns a service of another namespace that has an address outside of all pools, without
// the sharing key of this one. It must not give clients of its address to anyone who asks.
func (a *Allocator) stranger(r *Request, c netip.Addr) string {
	if a.poolOf(c) != nil {
		return ""
	}
	return a.holders[c].other(r.Service, func(one tenant) bool {
		return one.namespace != r.Namespace && (r.Key == "" || one.key != r.Key)
	})
}

// other returns the first other service with a property, in the order of names: a message with
// another one each time would change statuses for ever. It returns "" if there is none.
func (h *holder) other(than string, is func(tenant) bool) (first string) {
	if h == nil {
		return ""
	}
	for name, one := range h.services {
		if name != than && is(one) && (first == "" || name < first) {
			first = name
		}
	}
	return first
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
	stranger := func(one tenant) bool { return p == nil || p.Sharing != ShareByKey || r.Key == "" || one.key != r.Key }
	if other := h.other(r.Service, stranger); other != "" {
		return &Error{ReasonConflict, fmt.Sprintf("address %s belongs to service %s, and they have no common sharing key", c, other)}
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

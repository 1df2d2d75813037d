package reconcile

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	"loxilb/internal/control/compile"
	"loxilb/internal/control/desired"
	"loxilb/internal/control/store"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
)

// index has the services in the data path, and finds them by addresses. Only the loop's goroutine
// uses it.
type index struct {
	services map[lb.Key]indexed
	kept     map[lb.Key]keptService   // addresses that stay owned for services that could not be applied since the start
	vips     users                    // services that have the address, as VIP or as source
	named    map[netip.Addr]endpoint  // addresses of endpoints
	rows     map[bpf.TcServiceKey]int // ranges with this row: ranges that begin at one port share it
	notifier *notifier
	probes   *probes
}

// indexed is a service as configured, and as the data path has it if that differs. The zero value
// is no service.
type indexed struct {
	service  *lb.Service
	resolved *lb.Service // nil: no endpoint is a service
}

func (i *indexed) effective() *lb.Service {
	if i.resolved != nil {
		return i.resolved
	}
	return i.service
}

// endpoint counts the services that have an address as an endpoint, and the services that send
// connections there. The counts differ if the endpoint is a service itself.
type endpoint struct{ named, reached uint32 }

func newIndex(n *notifier, p *probes) *index {
	return &index{
		services: map[lb.Key]indexed{}, kept: map[lb.Key]keptService{},
		named: map[netip.Addr]endpoint{}, vips: users{}, rows: map[bpf.TcServiceKey]int{}, notifier: n, probes: p,
	}
}

// get returns a service in the data path as users wrote it, or nil.
func (x *index) get(key lb.Key) *lb.Service { return x.services[key].service }

func (x *index) keys() []lb.Key { return slices.Collect(maps.Keys(x.services)) }

func (x *index) allVIPs() []netip.Addr { return slices.Collect(maps.Keys(x.vips)) }

// owned reports whether a service has the address, and this node owns the VIPs of its instance.
func (x *index) owned(a netip.Addr, owns func(instance string) bool) bool {
	return slices.ContainsFunc(x.vips[a], func(u use) bool { return owns(u.instance) })
}

// keptService is kept for a service that is not in the data path.
type keptService struct {
	instance string
	vips     []netip.Addr
}

func (x *index) hasRow(key bpf.TcServiceKey) bool { return x.rows[key] > 0 }

// hasHost reports whether a service has connections to this endpoint.
func (x *index) hasHost(a netip.Addr) bool { return x.named[a].reached > 0 }

// keep counts the addresses of a service as in use although it is not in the data path, until
// release.
func (x *index) keep(s *lb.Service) {
	k := keptService{s.Instance(), s.OwnAddresses()}
	x.kept[s.Key] = k
	for _, a := range k.vips {
		x.vips.add(a, k.instance)
	}
}

// release returns the end of keep. It returns the addresses that were kept.
func (x *index) release(key lb.Key) []netip.Addr {
	kept := x.kept[key]
	delete(x.kept, key)
	for _, a := range kept.vips {
		x.vips.remove(a, kept.instance)
	}
	return kept.vips
}

// add enters a service.
func (x *index) add(i indexed) {
	s := i.service
	x.services[s.Key] = i
	if row := compile.Key(s.Key); row.Ranged() {
		x.rows[row]++
	}
	for _, a := range s.OwnAddresses() {
		x.vips.add(a, s.Instance())
	}
	x.count(&i, 1)
	x.probes.add(i.effective())
}

// remove removes a service and returns it. A missing one has no effect.
func (x *index) remove(key lb.Key) (i indexed) {
	i = x.services[key]
	if i.service == nil {
		return i
	}
	delete(x.services, key)
	if row := compile.Key(key); row.Ranged() {
		if x.rows[row]--; x.rows[row] == 0 {
			delete(x.rows, row)
		}
	}
	for _, a := range i.service.OwnAddresses() {
		x.vips.remove(a, i.service.Instance())
	}
	x.count(&i, -1)
	x.probes.remove(i.effective())
	return i
}

// count adds a service's endpoints, or removes them (by -1). It reports endpoints that gain their
// first or lose their last service.
func (x *index) count(i *indexed, by int32) {
	for _, e := range i.service.Endpoints {
		n := x.named[e.Addr]
		n.named += uint32(by) // wraps for -1: subtracts
		x.setEndpoint(e.Addr, n)
	}
	for _, e := range i.effective().Endpoints {
		n := x.named[e.Addr]
		n.reached += uint32(by)
		x.setEndpoint(e.Addr, n)
		if first := by > 0 && n.reached == 1; first || n.reached == 0 {
			x.notifier.change(e.Addr, first)
		}
	}
}

func (x *index) setEndpoint(a netip.Addr, n endpoint) {
	if n == (endpoint{}) {
		delete(x.named, a)
	} else {
		x.named[a] = n
	}
}

// usersOf returns the services with one of these endpoints, whose connections come from one of this
// machine's addresses.
func (x *index) usersOf(hosts map[netip.Addr]bool) (keys []lb.Key) {
	if len(hosts) == 0 {
		return nil
	}
	for key, i := range x.services {
		if slices.ContainsFunc(pathDependent(i.effective()), func(a netip.Addr) bool { return hosts[a] }) {
			keys = append(keys, key)
		}
	}
	return keys
}

// withEndpoints returns the services with connections to one of these hosts.
func (x *index) withEndpoints(hosts map[netip.Addr]bool) (keys []lb.Key) {
	if len(hosts) == 0 {
		return nil
	}
	for key, i := range x.services {
		if slices.ContainsFunc(i.effective().Endpoints, func(e lb.Endpoint) bool { return hosts[e.Addr] }) {
			keys = append(keys, key)
		}
	}
	return keys
}

// dependents returns the services that have one of these services as an endpoint, directly or
// through others. It costs a walk over all services, but only if some endpoint has the VIP of one
// of them.
func (x *index) dependents(snapshot *store.Snapshot, services *desired.Services, keys []lb.Key) (more []lb.Key) {
	in := make(map[lb.Key]bool, len(keys))
	for _, k := range keys {
		in[k] = true
	}
	for fresh := keys; len(fresh) > 0; {
		vips := x.endpointVIPs(snapshot, services, fresh)
		fresh = nil
		if len(vips) == 0 {
			break
		}
		for key, i := range x.services {
			if !in[key] && slices.ContainsFunc(i.service.Endpoints, func(e lb.Endpoint) bool { return vips[e.Addr] }) {
				in[key] = true
				fresh = append(fresh, key)
			}
		}
		more = append(more, fresh...)
	}
	return more
}

// endpointVIPs returns the VIPs that the services of these keys have or had, and that are an
// endpoint of some service.
func (x *index) endpointVIPs(snapshot *store.Snapshot, services *desired.Services, keys []lb.Key) map[netip.Addr]bool {
	vips := map[netip.Addr]bool{}
	add := func(list ...netip.Addr) {
		for _, a := range list {
			if x.named[a].named > 0 {
				vips[a] = true
			}
		}
	}
	for _, k := range keys {
		add(k.VIP)
		if s := x.get(k); s != nil {
			add(s.Secondary...)
		}
		if s, ok := services.Get(snapshot, k); ok {
			add(s.Secondary...)
		}
	}
	return vips
}

// users counts, by instance, the services that use an address: most addresses are of one instance.
type users map[netip.Addr][]use

type use struct {
	instance string
	services int
}

func (u users) add(a netip.Addr, instance string) {
	list := u[a]
	if i := slices.IndexFunc(list, func(o use) bool { return o.instance == instance }); i >= 0 {
		list[i].services++
		return
	}
	u[a] = append(list, use{instance, 1})
}

// remove forgets the address with its last user.
func (u users) remove(a netip.Addr, instance string) {
	list := u[a]
	i := slices.IndexFunc(list, func(o use) bool { return o.instance == instance })
	if i < 0 {
		return
	}
	if list[i].services--; list[i].services == 0 {
		list = slices.Delete(list, i, i+1)
	}
	if len(list) == 0 {
		delete(u, a)
	} else {
		u[a] = list
	}
}

// keysAt are the keys of an address: usually one, possibly many.
type keysAt map[netip.Addr]*keySet

type keySet struct {
	one  string
	more map[string]struct{} // nil: none
}

func (k keysAt) add(a netip.Addr, key string) {
	s := k[a]
	switch {
	case s == nil:
		k[a] = &keySet{one: key}
	case s.one == key:
	case s.more == nil:
		s.more = map[string]struct{}{key: {}}
	default:
		s.more[key] = struct{}{}
	}
}

// remove has no effect if the address has no such key.
func (k keysAt) remove(a netip.Addr, key string) {
	s := k[a]
	if s == nil {
		return
	}
	if s.one != key {
		delete(s.more, key)
		return
	}
	for other := range s.more {
		s.one = other
		delete(s.more, other)
		return
	}
	delete(k, a)
}

// of yields the keys of an address.
func (k keysAt) of(a netip.Addr) iter.Seq[string] {
	return func(yield func(string) bool) {
		s := k[a]
		if s == nil || !yield(s.one) {
			return
		}
		for key := range s.more {
			if !yield(key) {
				return
			}
		}
	}
}

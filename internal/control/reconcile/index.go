package reconcile

import (
	"maps"
	"net/netip"
	"slices"

	"loxilb/internal/control/compile"
	"loxilb/internal/control/desired"
	"loxilb/internal/control/store"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
)

// index holds the services in the data path, and finds them by address. Only the loop's goroutine
// uses it.
type index struct {
	services  map[lb.Key]indexed
	kept      map[lb.Key]keptService     // services that could not be applied since the start, whose addresses stay owned
	vips      users                      // services by their own addresses: VIPs and sources
	endpoints map[netip.Addr]endpointUse // by address
	rows      map[bpf.TcServiceKey]int   // number of port ranges by row: ranges that begin at the same port share one
	notifier  *notifier
	probes    *probes
}

// indexed is a service as configured, and as the data path has it if that differs. The zero value
// means no service.
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

// endpointUse counts the services with an endpoint at an address: as configured, and after
// endpoints that are services themselves were replaced by theirs.
type endpointUse struct{ configured, effective uint32 }

func newIndex(n *notifier, p *probes) *index {
	return &index{
		services: map[lb.Key]indexed{}, kept: map[lb.Key]keptService{},
		endpoints: map[netip.Addr]endpointUse{}, vips: users{}, rows: map[bpf.TcServiceKey]int{}, notifier: n, probes: p,
	}
}

// get returns a service in the data path as configured, or nil.
func (x *index) get(key lb.Key) *lb.Service { return x.services[key].service }

func (x *index) keys() []lb.Key { return slices.Collect(maps.Keys(x.services)) }

func (x *index) allVIPs() []netip.Addr { return slices.Collect(maps.Keys(x.vips)) }

// owned reports whether a service has the address, and this node owns the VIPs of its instance.
func (x *index) owned(a netip.Addr, owns func(instance string) bool) bool {
	return slices.ContainsFunc(x.vips[a], func(u use) bool { return owns(u.instance) })
}

// keptService is a service that could not be applied, and the VIPs that stay owned for it.
type keptService struct {
	instance string
	vips     []netip.Addr
}

func (x *index) hasRow(key bpf.TcServiceKey) bool { return x.rows[key] > 0 }

// hasEndpoint reports whether a service sends connections to an address.
func (x *index) hasEndpoint(a netip.Addr) bool { return x.endpoints[a].effective > 0 }

// keep counts the addresses of a service as in use until release, although the service is not in
// the index.
func (x *index) keep(s *lb.Service) {
	k := keptService{s.Instance(), s.OwnAddresses()}
	x.kept[s.Key] = k
	for _, a := range k.vips {
		x.vips.add(a, k.instance)
	}
}

// release undoes keep, and returns the addresses that were kept.
func (x *index) release(key lb.Key) []netip.Addr {
	kept := x.kept[key]
	delete(x.kept, key)
	for _, a := range kept.vips {
		x.vips.remove(a, kept.instance)
	}
	return kept.vips
}

// add adds a service.
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

// remove removes a service and returns it; the zero value if there is none.
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
		n := x.endpoints[e.Addr]
		n.configured += uint32(by) // -1 wraps, and so subtracts
		x.setEndpoint(e.Addr, n)
	}
	for _, e := range i.effective().Endpoints {
		n := x.endpoints[e.Addr]
		n.effective += uint32(by)
		x.setEndpoint(e.Addr, n)
		if first := by > 0 && n.effective == 1; first || n.effective == 0 {
			x.notifier.change(e.Addr, first)
		}
	}
}

func (x *index) setEndpoint(a netip.Addr, n endpointUse) {
	if n == (endpointUse{}) {
		delete(x.endpoints, a)
	} else {
		x.endpoints[a] = n
	}
}

// withPathTo returns the services that depend on the path to one of these endpoints.
func (x *index) withPathTo(hosts map[netip.Addr]bool) (keys []lb.Key) {
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

// withEndpoints returns the services that send connections to one of these hosts.
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
// through others. It costs a walk over all services, but only if an endpoint has the VIP of one of
// the given services.
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
			if x.endpoints[a].configured > 0 {
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

// users counts the services that use an address, by instance. Most addresses have one instance.
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

// remove removes the address with its last user.
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

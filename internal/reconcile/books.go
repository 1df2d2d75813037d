package reconcile

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	"loxilb/internal/compile"
	"loxilb/internal/datapath/bpf"
	"loxilb/internal/lb"
	"loxilb/internal/store"
)

// resolved are the services as the data path has them.
func resolved(r *compile.Resolver, list iter.Seq[lb.Service]) iter.Seq[lb.Service] {
	return func(yield func(lb.Service) bool) {
		for s := range list {
			s, _, _ = r.Resolve(s)
			if !yield(s) {
				return
			}
		}
	}
}

// come enters a service into the books, and compiles it.
func (r *Reconciler) come(resolver *compile.Resolver, s lb.Service) *bpf.ServiceTable {
	folded, parents, err := resolver.Resolve(s)
	if err != nil {
		r.log.Error("a service that is not accepted any more is in the data path with fewer endpoints", "service", s.Key, "err", err)
	}
	r.current[s.Key] = s
	if parents != nil {
		r.folded[s.Key] = folded
	}
	r.count(s, 1)
	t := compile.Service(folded, nil, r.seed, r.source)
	t.Of = parents
	return &t
}

// leave takes a service out of the books.
func (r *Reconciler) leave(s lb.Service) {
	r.count(s, -1)
	delete(r.current, s.Key)
	delete(r.folded, s.Key)
}

// count keeps the books of addresses: by is 1 for a service that comes, -1 for one that goes.
func (r *Reconciler) count(s lb.Service, by int) {
	for _, a := range ownable(s) {
		tally(r.vips, a, by)
	}
	for _, e := range s.Endpoints {
		tally(r.named, e.Addr, by)
	}
	for _, e := range r.effective(s).Endpoints {
		if tally(r.hosts, e.Addr, by) && r.started {
			r.teller.change(e.Addr, by > 0)
		}
	}
}

// effective is a service of the books as the data path has it.
func (r *Reconciler) effective(s lb.Service) lb.Service {
	if folded, ok := r.folded[s.Key]; ok {
		return folded
	}
	return s
}

// reached are the VIPs that the services of these keys have or had.
func (r *Reconciler) reached(snapshot *store.Snapshot, keys []lb.Key) map[netip.Addr]bool {
	vips := map[netip.Addr]bool{}
	add := func(a netip.Addr) {
		if r.named[a] > 0 {
			vips[a] = true
		}
	}
	for _, k := range keys {
		add(k.VIP)
		for _, a := range r.current[k].Secondary {
			add(a)
		}
		if s, ok := r.store.Services.Get(snapshot, k); ok {
			for _, a := range s.Secondary {
				add(a)
			}
		}
	}
	return vips
}

// dependents adds the services that have one of these for an endpoint, directly or by way of others. It costs a walk
// over all services, but only if some endpoint has the VIP of one of them.
func (r *Reconciler) dependents(snapshot *store.Snapshot, keys []lb.Key) []lb.Key {
	in := make(map[lb.Key]bool, len(keys))
	for _, k := range keys {
		in[k] = true
	}
	for fresh := keys; len(fresh) > 0; {
		vips := r.reached(snapshot, fresh)
		fresh = nil
		if len(vips) == 0 {
			break
		}
		has := func(e lb.Endpoint) bool { return vips[e.Addr] }
		if len(vips) == 1 { // as a rule, and then faster
			for a := range vips {
				has = func(e lb.Endpoint) bool { return e.Addr == a }
			}
		}
		for key, s := range r.current {
			if !in[key] && slices.ContainsFunc(s.Endpoints, has) {
				in[key] = true
				fresh = append(fresh, key)
			}
		}
	}
	if len(in) == len(keys) {
		return keys
	}
	return slices.SortedFunc(maps.Keys(in), lb.Key.Compare)
}

// tally adds to a count and tells whether the address came or went by it.
func tally(m map[netip.Addr]int, a netip.Addr, by int) bool {
	old := m[a]
	m[a] = old + by
	if m[a] == 0 {
		delete(m, a)
	}
	return old == 0 || old+by == 0
}

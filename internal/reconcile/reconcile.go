// Package reconcile makes the data path what the store wants: it watches the store, compiles what changed,
// applies it, and reports how far it got. Nothing else writes tables.
package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"loxilb/internal/compile"
	"loxilb/internal/datapath"
	"loxilb/internal/datapath/bpf"
	"loxilb/internal/desired"
	"loxilb/internal/lb"
	"loxilb/internal/store"
)

// retryAfter is how long a failed pass waits before it is tried again, unless a change comes first.
const retryAfter = time.Second

// Tables is the data path.
type Tables interface {
	Apply([]datapath.Change) []error // one for each change that failed, nil for the others
	Services() []bpf.TcServiceKey
}

// Addresses owns the VIPs that nobody else owns. All methods are idempotent.
type Addresses interface {
	Set(ctx context.Context, vips []netip.Addr) error // exactly these
	Add(ctx context.Context, vips ...netip.Addr) error
	Remove(ctx context.Context, vips ...netip.Addr) error
}

// Sources finds this machine's addresses towards endpoints; those without one are left out.
type Sources interface {
	Towards(ctx context.Context, hosts []netip.Addr) (map[netip.Addr]netip.Addr, error)
}

// Reconciler brings revisions of the store into the data path, one after the other.
type Reconciler struct {
	store     *desired.State
	tables    Tables
	addresses Addresses
	sources   Sources
	stale     chan struct{} // capacity 1: addresses or routes have changed
	teller    *teller
	log       *slog.Logger
	seed      uint64

	// Only Run touches these.
	started bool     // a full pass was done
	seen    uint64   // revision of the last pass
	again   []lb.Key // what that pass failed with: to be tried again
	told    string   // the failure that was logged last
	current map[lb.Key]lb.Service
	folded  map[lb.Key]lb.Service // of current: those with services for endpoints, as the data path has them
	named   map[netip.Addr]int    // services that name such an endpoint
	vips    map[netip.Addr]int    // services that have the address, as VIP or as source
	owned   map[netip.Addr]bool
	hosts   map[netip.Addr]int        // services whose connections go to such an endpoint
	touched []netip.Addr              // VIPs that a failed pass did not get to
	towards map[netip.Addr]netip.Addr // this machine's addresses towards endpoints

	mu      sync.Mutex
	passes  uint64        // done, with or without success
	applied uint64        // last revision that is in whole
	tried   uint64        // last revision that was tried
	err     error         // of tried, nil if it is applied
	moved   chan struct{} // closed and replaced when one of the above changes
	ended   func()
}

// New makes a reconciler. onEnded is called after a pass that may have removed a service or an endpoint, whose
// connections then wait for a sweep. seed is the key of tables of hashes.
func New(s *desired.State, t Tables, a Addresses, sources Sources, e Endpoints, onEnded func(), seed uint64, log *slog.Logger) *Reconciler {
	return &Reconciler{
		store: s, tables: t, addresses: a, sources: sources, stale: make(chan struct{}, 1), teller: newTeller(e), ended: onEnded, seed: seed, log: log,
		current: map[lb.Key]lb.Service{}, vips: map[netip.Addr]int{}, owned: map[netip.Addr]bool{}, hosts: map[netip.Addr]int{},
		folded: map[lb.Key]lb.Service{}, named: map[netip.Addr]int{},
		moved: make(chan struct{}), towards: map[netip.Addr]netip.Addr{},
	}
}

// Run reconciles until ctx ends.
func (r *Reconciler) Run(ctx context.Context) {
	var telling sync.WaitGroup
	defer telling.Wait()
	telling.Go(func() { r.teller.run(ctx) })
	for {
		changed := r.store.Changed()
		revision, err := r.pass(ctx)
		if ctx.Err() != nil {
			return // what failed may have failed for that
		}
		r.report(revision, err)
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-r.stale:
			r.restart(ctx)
		case <-r.retry(revision, err):
		}
	}
}

// retry says when to try again what failed; nil: all is done. It logs a failure once, however often it repeats.
func (r *Reconciler) retry(revision uint64, err error) <-chan time.Time {
	if err == nil {
		if r.told != "" {
			r.log.Info("the desired state is in the data path again", "revision", revision)
		}
		r.told = ""
		return nil
	}
	if text := err.Error(); text != r.told {
		r.log.Error("the desired state is not in the data path; trying again", "revision", revision, "every", retryAfter, "err", err)
		r.told = text
	}
	return time.After(retryAfter)
}

// pass brings the store's current revision into the data path.
func (r *Reconciler) pass(ctx context.Context) (uint64, error) {
	snapshot, changed, ok := r.store.Since(r.seen)
	r.seen = snapshot.Revision()
	if r.started && ok {
		keys := append(desired.ServiceKeys(changed), r.again...)
		slices.SortFunc(keys, lb.Key.Compare)
		return r.seen, r.step(ctx, snapshot, slices.Compact(keys))
	}
	err := r.full(ctx, snapshot)
	r.started = err == nil
	return r.seen, err
}

// full applies every service and removes those that the store does not have: at start, when the data path
// holds what an earlier process left, when the store no longer knows what has changed, and after it failed.
func (r *Reconciler) full(ctx context.Context, snapshot *store.Snapshot) error {
	var gone, changes []datapath.Change
	wanted := make(map[bpf.TcServiceKey]bool, r.store.Services.Len(snapshot))
	r.again, r.touched = nil, nil
	f := compile.NewResolver(r.store.Services.At(snapshot))
	if err := r.findSources(ctx, resolved(f, r.store.Services.All(snapshot)), true); err != nil {
		return err
	}
	clear(r.current)
	clear(r.folded)
	clear(r.named)
	clear(r.vips)
	clear(r.hosts)
	for s := range r.store.Services.All(snapshot) {
		t := r.come(f, s)
		changes = append(changes, datapath.Change{Key: t.Key, Table: t})
		wanted[t.Key] = true
	}
	for _, key := range r.tables.Services() {
		if !wanted[key] {
			gone = append(gone, datapath.Change{Key: key})
		}
	}
	r.teller.reset(maps.Keys(r.hosts))
	err := r.apply(append(gone, changes...))
	r.ended()
	clear(r.owned)
	for vip := range r.vips {
		r.owned[vip] = true
	}
	if vipErr := r.addresses.Set(ctx, slices.Collect(maps.Keys(r.vips))); vipErr != nil {
		err = errors.Join(err, fmt.Errorf("own VIPs: %w", vipErr))
	}
	return err
}

// apply names the services that failed, the first of them.
func (r *Reconciler) apply(changes []datapath.Change) error {
	const named = 3
	var failed []error
	n := 0
	for i, err := range r.tables.Apply(changes) {
		if err == nil {
			continue
		}
		if n++; n <= named {
			failed = append(failed, fmt.Errorf("service %s: %w", changes[i].Key, err))
		}
	}
	if n > named {
		failed = append(failed, fmt.Errorf("and %d services more", n-named))
	}
	return errors.Join(failed...)
}

// step applies what changed: first what goes, to make room. What fails is tried again with the next step; the rest
// is not kept waiting by it.
func (r *Reconciler) step(ctx context.Context, snapshot *store.Snapshot, keys []lb.Key) error {
	var gone, changes []datapath.Change
	f := compile.NewResolver(r.store.Services.At(snapshot))
	keys = r.dependents(snapshot, keys)
	if err := r.findSources(ctx, resolved(f, services(r.store, snapshot, keys)), false); err != nil {
		r.again = keys
		return err
	}
	ended := len(r.again) > 0
	touched := r.touched
	for _, key := range keys {
		old, had := r.current[key]
		now, has := r.store.Services.Get(snapshot, key)
		touched = append(append(touched, ownable(old)...), ownable(now)...)
		if had {
			r.leave(old)
			ended = true
		}
		if !has {
			gone = append(gone, datapath.Change{Key: compile.Key(key)})
			continue
		}
		t := r.come(f, now)
		changes = append(changes, datapath.Change{Key: t.Key, Table: t})
	}
	gone = slices.DeleteFunc(gone, func(g datapath.Change) bool { // a range that ends elsewhere now
		return g.Key.Ranged() && slices.ContainsFunc(changes, func(c datapath.Change) bool { return c.Key == g.Key })
	})
	err := r.apply(append(gone, changes...))
	if ended {
		r.ended()
	}
	if vipErr := r.moveVIPs(ctx, touched); vipErr != nil {
		err = errors.Join(err, fmt.Errorf("own VIPs: %w", vipErr))
	}
	r.again, r.touched = nil, nil
	if err != nil {
		r.again, r.touched = keys, touched
	}
	return err
}

// moveVIPs has these addresses owned or given up: owned only once their services are there, and given up only after
// they are gone.
func (r *Reconciler) moveVIPs(ctx context.Context, touched []netip.Addr) error {
	var add, remove []netip.Addr
	slices.SortFunc(touched, netip.Addr.Compare)
	for _, a := range slices.Compact(touched) {
		switch has, had := r.vips[a] > 0, r.owned[a]; {
		case has && !had:
			add = append(add, a)
		case had && !has:
			remove = append(remove, a)
		}
	}
	if len(remove) > 0 {
		if err := r.addresses.Remove(ctx, remove...); err != nil {
			return err
		}
		for _, vip := range remove {
			delete(r.owned, vip)
		}
	}
	if len(add) > 0 {
		if err := r.addresses.Add(ctx, add...); err != nil {
			return err
		}
		for _, vip := range add {
			r.owned[vip] = true
		}
	}
	return nil
}

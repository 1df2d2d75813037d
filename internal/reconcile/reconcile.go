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
	"loxilb/internal/lb"
	"loxilb/internal/store"
)

// retryAfter is how long a failed pass waits before it is tried again, unless a change comes first.
const retryAfter = time.Second

// Tables is the data path.
type Tables interface {
	Apply([]datapath.Change) error
	Services() []bpf.TcServiceKey
}

// Addresses owns the VIPs that nobody else owns. All methods are idempotent.
type Addresses interface {
	Set(ctx context.Context, vips []netip.Addr) error // exactly these
	Add(ctx context.Context, vips ...netip.Addr) error
	Remove(ctx context.Context, vips ...netip.Addr) error
}

// Reconciler brings revisions of the store into the data path, one after the other.
type Reconciler struct {
	store     *store.Store
	tables    Tables
	addresses Addresses
	teller    *teller
	log       *slog.Logger

	// Only Run touches these.
	started bool     // a full pass was done
	seen    uint64   // revision of the last pass
	again   []lb.Key // what that pass failed with: to be tried again
	told    string   // the failure that was logged last
	current map[lb.Key]lb.Service
	vips    map[netip.Addr]int // services that have the address
	owned   map[netip.Addr]bool
	hosts   map[netip.Addr]int // services that have such an endpoint

	mu      sync.Mutex
	passes  uint64        // done, with or without success
	applied uint64        // last revision that is in whole
	tried   uint64        // last revision that was tried
	err     error         // of tried, nil if it is applied
	moved   chan struct{} // closed and replaced when one of the above changes
	ended   func()
}

// New makes a reconciler. onEnded is called after a pass that may have removed a service or an endpoint, whose
// connections then wait for a sweep.
func New(s *store.Store, t Tables, a Addresses, e Endpoints, onEnded func(), log *slog.Logger) *Reconciler {
	return &Reconciler{
		store: s, tables: t, addresses: a, teller: newTeller(e), ended: onEnded, log: log,
		current: map[lb.Key]lb.Service{}, vips: map[netip.Addr]int{}, owned: map[netip.Addr]bool{}, hosts: map[netip.Addr]int{},
		moved: make(chan struct{}),
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
	snapshot, keys, ok := r.store.Since(r.seen)
	r.seen = snapshot.Revision()
	if r.started && ok {
		keys = append(keys, r.again...)
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
	wanted := make(map[bpf.TcServiceKey]bool, snapshot.Len())
	r.again = nil
	clear(r.current)
	clear(r.vips)
	clear(r.hosts)
	for s := range snapshot.All() {
		t := compile.Service(s, nil)
		changes = append(changes, datapath.Change{Key: t.Key, Table: &t})
		wanted[t.Key] = true
		r.count(s, 1)
	}
	for _, key := range r.tables.Services() {
		if !wanted[key] {
			gone = append(gone, datapath.Change{Key: key})
		}
	}
	r.teller.reset(maps.Keys(r.hosts))
	err := r.tables.Apply(append(gone, changes...))
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

// step applies what changed: first what goes, to make room. What fails is tried again with the next step; the rest
// is not kept waiting by it.
func (r *Reconciler) step(ctx context.Context, snapshot *store.Snapshot, keys []lb.Key) error {
	var gone, changes []datapath.Change
	ended := len(r.again) > 0
	for _, key := range keys {
		old, had := r.current[key]
		now, has := snapshot.Get(key)
		if had {
			r.count(old, -1)
			ended = true
		}
		if !has {
			gone = append(gone, datapath.Change{Key: compile.Key(key)})
			continue
		}
		r.count(now, 1)
		t := compile.Service(now, nil)
		changes = append(changes, datapath.Change{Key: t.Key, Table: &t})
	}
	err := r.tables.Apply(append(gone, changes...))
	if ended {
		r.ended()
	}
	if vipErr := r.moveVIPs(ctx, keys); vipErr != nil {
		err = errors.Join(err, fmt.Errorf("own VIPs: %w", vipErr))
	}
	r.again = nil
	if err != nil {
		r.again = keys
	}
	return err
}

// moveVIPs has the VIPs of these services owned or given up: owned only once the service is there, and given up only
// after it is gone.
func (r *Reconciler) moveVIPs(ctx context.Context, keys []lb.Key) error {
	var add, remove []netip.Addr
	for i, key := range keys {
		if i > 0 && key.VIP == keys[i-1].VIP {
			continue // seen: they are in order
		}
		switch has, had := r.vips[key.VIP] > 0, r.owned[key.VIP]; {
		case has && !had:
			add = append(add, key.VIP)
		case had && !has:
			remove = append(remove, key.VIP)
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

// count keeps the books: by is 1 for a service that comes, -1 for one that goes.
func (r *Reconciler) count(s lb.Service, by int) {
	if by > 0 {
		r.current[s.Key] = s
	} else {
		delete(r.current, s.Key)
	}
	tally(r.vips, s.VIP, by)
	for _, e := range s.Endpoints {
		if tally(r.hosts, e.Addr, by) && r.started {
			r.teller.change(e.Addr, by > 0)
		}
	}
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

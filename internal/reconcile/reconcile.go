// Package reconcile makes the data path what the store wants: it watches the store, compiles what changed,
// applies it, and reports how far it got. Nothing else writes tables.
package reconcile

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net/netip"
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

// tellAfter collects changes of the set of endpoints before Endpoints is told, as telling costs as much as there
// are endpoints.
const tellAfter = 100 * time.Millisecond

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

// Endpoints is told which endpoints there are, to keep the way to them known.
type Endpoints interface {
	Set(addrs iter.Seq[netip.Addr]) // exactly these; good during the call only
}

// Reconciler brings revisions of the store into the data path, one after the other.
type Reconciler struct {
	store     *store.Store
	tables    Tables
	addresses Addresses
	endpoints Endpoints
	log       *slog.Logger

	// Only Run touches these.
	started bool // a full pass was done
	current map[lb.Key]lb.Service
	vips    map[netip.Addr]int // services that have the address
	hosts   map[netip.Addr]int // services that have such an endpoint
	tell    <-chan time.Time   // fires when Endpoints is to be told; nil: it knows

	mu      sync.Mutex
	passes  uint64        // done, with or without success
	applied uint64        // last revision that is in whole
	tried   uint64        // last revision that was tried
	err     error         // of tried, nil if it is applied
	moved   chan struct{} // closed and replaced when one of the above changes
	ended   func()
}

// New makes a reconciler. onEnded is called after a pass that removed a service or an endpoint, whose
// connections then wait for a sweep.
func New(s *store.Store, t Tables, a Addresses, e Endpoints, onEnded func(), log *slog.Logger) *Reconciler {
	return &Reconciler{
		store: s, tables: t, addresses: a, endpoints: e, ended: onEnded, log: log,
		current: map[lb.Key]lb.Service{}, vips: map[netip.Addr]int{}, hosts: map[netip.Addr]int{},
		moved: make(chan struct{}),
	}
}

// Run reconciles until ctx ends.
func (r *Reconciler) Run(ctx context.Context) {
	for ctx.Err() == nil {
		changed := r.store.Changed()
		revision, err := r.pass(ctx)
		r.report(revision, err)
		var retry <-chan time.Time
		if err != nil {
			r.log.Error("the desired state is not in the data path; trying again", "revision", revision, "err", err)
			retry = time.After(retryAfter)
			r.started = false // what was applied of it is not known: compare everything
		}
		r.idle(ctx, changed, retry)
	}
}

// idle waits for the store to change or the time to try again.
func (r *Reconciler) idle(ctx context.Context, changed <-chan struct{}, retry <-chan time.Time) {
	for {
		select {
		case <-r.tell:
			r.tell = nil
			r.endpoints.Set(maps.Keys(r.hosts))
			continue
		case <-ctx.Done():
		case <-changed:
		case <-retry:
		}
		return
	}
}

// pass brings the store's current revision into the data path.
func (r *Reconciler) pass(ctx context.Context) (uint64, error) {
	snapshot, keys, ok := r.store.Since(r.appliedRevision())
	if !r.started || !ok {
		return snapshot.Revision(), r.full(ctx, snapshot)
	}
	return snapshot.Revision(), r.step(ctx, snapshot, keys)
}

// full applies every service and removes those that the store does not have: at start, when the data path
// holds what an earlier process left, and after an error.
func (r *Reconciler) full(ctx context.Context, snapshot *store.Snapshot) error {
	changes := make([]datapath.Change, 0, snapshot.Len())
	wanted := make(map[bpf.TcServiceKey]bool, snapshot.Len())
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
			changes = append(changes, datapath.Change{Key: key})
		}
	}
	if err := r.tables.Apply(changes); err != nil {
		return err
	}
	vips := make([]netip.Addr, 0, len(r.vips))
	for vip := range r.vips {
		vips = append(vips, vip)
	}
	if err := r.addresses.Set(ctx, vips); err != nil {
		return fmt.Errorf("own VIPs: %w", err)
	}
	r.ended()
	r.started = true
	return nil
}

// step applies what changed. A VIP is owned only once its service is there, and given up only after it is gone.
func (r *Reconciler) step(ctx context.Context, snapshot *store.Snapshot, keys []lb.Key) error {
	changes := make([]datapath.Change, 0, len(keys))
	before := make(map[netip.Addr]bool, len(keys))
	for _, key := range keys {
		before[key.VIP] = r.vips[key.VIP] > 0
	}
	ended := false
	for _, key := range keys {
		old, had := r.current[key]
		if had {
			r.count(old, -1)
			ended = true
		}
		now, has := snapshot.Get(key)
		if !has {
			changes = append(changes, datapath.Change{Key: compile.Key(key)})
			continue
		}
		r.count(now, 1)
		t := compile.Service(now, nil)
		changes = append(changes, datapath.Change{Key: t.Key, Table: &t})
	}
	if err := r.tables.Apply(changes); err != nil {
		return err
	}
	if err := r.moveVIPs(ctx, before); err != nil {
		return fmt.Errorf("own VIPs: %w", err)
	}
	if ended {
		r.ended()
	}
	return nil
}

func (r *Reconciler) moveVIPs(ctx context.Context, before map[netip.Addr]bool) error {
	var add, remove []netip.Addr
	for vip, had := range before {
		switch has := r.vips[vip] > 0; {
		case has && !had:
			add = append(add, vip)
		case had && !has:
			remove = append(remove, vip)
		}
	}
	if err := r.addresses.Remove(ctx, remove...); err != nil {
		return err
	}
	return r.addresses.Add(ctx, add...)
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
		if tally(r.hosts, e.Addr, by) && r.tell == nil {
			r.tell = time.After(tellAfter)
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

package reconcile

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"time"

	"loxilb/internal/compile"
	"loxilb/internal/desired"
	"loxilb/internal/lb"
	"loxilb/internal/store"
)

// sourceShare bounds the part of the time that looking sources up again takes, however fast routes change.
const sourceShare = 20

// ownable lists the addresses of a service that this machine has to answer for: its VIPs, and sources of its own choice.
func ownable(s lb.Service) []netip.Addr {
	var out []netip.Addr
	if s.VIP.IsValid() && !s.VIP.IsUnspecified() {
		out = append(out, s.VIP)
	}
	return append(append(out, s.Secondary...), s.SNAT...)
}

// Moved says that routes or addresses have changed, and with them perhaps what endpoints see as source.
func (r *Reconciler) Moved() {
	select {
	case r.stale <- struct{}{}:
	default:
	}
}

// restart marks the services whose sources have changed for the next pass. Connections that are there keep theirs.
func (r *Reconciler) restart(ctx context.Context) {
	start := time.Now()
	before := maps.Clone(r.towards)
	if err := r.findSources(ctx, r.effectives(), true); err != nil {
		r.log.Warn("source addresses could not be looked up again", "err", err)
		r.Moved()
	}
	if maps.Equal(before, r.towards) {
		r.rest(ctx, start)
		return
	}
	for s := range r.effectives() {
		if slices.ContainsFunc(s.Endpoints, func(e lb.Endpoint) bool {
			return compile.NeedsSource(s, e) && before[e.Addr] != r.towards[e.Addr]
		}) {
			r.again = append(r.again, s.Key)
		}
	}
}

// effectives are all services as the data path has them.
func (r *Reconciler) effectives() iter.Seq[lb.Service] {
	return func(yield func(lb.Service) bool) {
		for _, s := range r.current {
			if !yield(r.effective(s)) {
				return
			}
		}
	}
}

// rest keeps a storm of changes of routes from taking all of the time, unless a service changes.
func (r *Reconciler) rest(ctx context.Context, start time.Time) {
	select {
	case <-ctx.Done():
	case <-r.store.Changed():
	case <-time.After(sourceShare * time.Since(start)):
	}
}

// source is this machine's address towards an endpoint.
func (r *Reconciler) source(endpoint netip.Addr) netip.Addr { return r.towards[endpoint] }

// findSources looks up what the services need: all of it, or what is not known yet.
func (r *Reconciler) findSources(ctx context.Context, list iter.Seq[lb.Service], all bool) error {
	need := map[netip.Addr]bool{}
	for s := range list {
		for _, e := range s.Endpoints {
			if compile.NeedsSource(s, e) && (all || !r.towards[e.Addr].IsValid()) {
				need[e.Addr] = true
			}
		}
	}
	if len(need) == 0 {
		return nil
	}
	found, err := r.sources.Towards(ctx, slices.Collect(maps.Keys(need)))
	if err != nil {
		return fmt.Errorf("find source addresses: %w", err)
	}
	if all {
		clear(r.towards)
	}
	maps.Copy(r.towards, found)
	return nil
}

// services are those of the keys that exist.
func services(d *desired.State, snapshot *store.Snapshot, keys []lb.Key) iter.Seq[lb.Service] {
	return func(yield func(lb.Service) bool) {
		for _, key := range keys {
			if s, ok := d.Services.Get(snapshot, key); ok && !yield(s) {
				return
			}
		}
	}
}

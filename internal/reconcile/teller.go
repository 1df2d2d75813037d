package reconcile

import (
	"context"
	"iter"
	"maps"
	"net/netip"
	"sync"
	"time"
)

// Endpoints is told which endpoints there are, to keep the way to them known.
type Endpoints interface {
	Set(addrs iter.Seq[netip.Addr]) // exactly these; good during the call only
}

// tellAfter collects changes before Endpoints is told of them, and tellShare bounds the part of the time that it
// takes: telling costs as much as there are endpoints, and no change of a service waits for it.
const (
	tellAfter = 100 * time.Millisecond
	tellShare = 20
)

// teller tells Endpoints of the reconciler's, some time later and from a goroutine of its own.
type teller struct {
	endpoints Endpoints
	notify    chan struct{} // capacity 1

	mu    sync.Mutex
	fresh bool // forget what was told: changes is everything
	// addresses that came (true) or went since
	changes map[netip.Addr]bool
}

func newTeller(e Endpoints) *teller {
	return &teller{endpoints: e, notify: make(chan struct{}, 1), changes: map[netip.Addr]bool{}}
}

// reset makes these the endpoints.
func (t *teller) reset(all iter.Seq[netip.Addr]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fresh = true
	clear(t.changes)
	for a := range all {
		t.changes[a] = true
	}
	t.signal()
}

// change says that an endpoint came or went.
func (t *teller) change(a netip.Addr, came bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changes[a] = came
	t.signal()
}

func (t *teller) signal() {
	select {
	case t.notify <- struct{}{}:
	default:
	}
}

// run tells until ctx ends.
func (t *teller) run(ctx context.Context) {
	known := map[netip.Addr]struct{}{}
	wait := tellAfter
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.notify:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		start := time.Now()
		t.take(known)
		t.endpoints.Set(maps.Keys(known))
		wait = max(tellAfter, tellShare*time.Since(start))
	}
}

// take brings known up to date.
func (t *teller) take(known map[netip.Addr]struct{}) {
	t.mu.Lock()
	fresh, changes := t.fresh, t.changes
	t.fresh, t.changes = false, map[netip.Addr]bool{}
	t.mu.Unlock()
	if fresh {
		clear(known)
	}
	for a, came := range changes {
		if came {
			known[a] = struct{}{}
		} else {
			delete(known, a)
		}
	}
}

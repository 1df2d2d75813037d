package reconcile

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/control/desired"
	"loxilb/internal/control/status"
	"loxilb/internal/control/store"
	"loxilb/internal/event"
	"loxilb/internal/lb"
	"loxilb/test/await"
)

// rig has a loop of services, a store in memory, and a fake kernel.
type rig struct {
	*fakeKernel
	t        testing.TB
	state    *desired.State
	services *Services
	health   *Health
	prober   *fakeProber
	statuses *status.Table
	hub      *event.Hub
	ended    chan struct{}
	feeds    atomic.Int32 // number of the loop's checks for changes
}

// commit is a committed change.
type commit struct {
	revision uint64
	ids      []status.ID
}

// newRig starts a rig with these services, and waits until they are applied.
func newRig(t testing.TB, w *fakeKernel, services ...string) *rig {
	t.Helper()
	r := newStoppedRig(t, w)
	c := r.put(services...)
	r.start()
	r.wait(c)
	return r
}

// newStoppedRig returns a rig whose loop does not run yet.
func newStoppedRig(t testing.TB, w *fakeKernel) *rig {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	state, err := desired.Open("", log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := state.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &rig{fakeKernel: w, t: t, state: state, statuses: status.NewTable(), hub: event.NewHub(), ended: make(chan struct{}, 10_000)}
	o := Observers{Statuses: r.statuses, Events: r.hub, Log: log}
	r.prober = newFakeProber()
	r.health = NewHealth(r.prober, o)
	r.services = NewServices(ServicesConfig{
		Observers: o, Desired: state, Tables: w, VIPs: fakeOwner{w}, Sources: w,
		Endpoints: fakeEndpoints{w}, Health: r.health, Ended: func() { r.ended <- struct{}{} },
		Role: w.role,
	})
	feed := r.services.feed
	r.services.Loop.feed = func(ctx context.Context) { r.feeds.Add(1); feed(ctx) }
	return r
}

// runUntilEnd runs loops until the test ends, or until stop is called.
func runUntilEnd(t testing.TB, loops func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); loops(ctx) }()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

func (r *rig) start() {
	runUntilEnd(r.t, r.services.Run)
}

func (r *rig) commit(edit func(*store.Tx) error) commit {
	r.t.Helper()
	revision, changed, err := r.state.Commit("rest", edit)
	if err != nil {
		r.t.Fatal(err)
	}
	c := commit{revision: revision}
	for _, id := range changed {
		c.ids = append(c.ids, status.ID(id))
	}
	return c
}

// put stores services in text form.
func (r *rig) put(services ...string) commit {
	r.t.Helper()
	return r.commit(func(tx *store.Tx) error {
		for _, text := range services {
			s, err := lb.ParseService(text)
			if err == nil {
				err = r.state.Services.Put(tx, s)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *rig) delete(keys ...string) commit {
	r.t.Helper()
	return r.commit(func(tx *store.Tx) error {
		for _, k := range keys {
			if err := r.state.Services.Delete(tx, key(r.t, k)); err != nil {
				return err
			}
		}
		return nil
	})
}

func key(t testing.TB, text string) lb.Key {
	t.Helper()
	k, err := lb.ParseKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (r *rig) result(c commit) error {
	ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
	defer cancel()
	return r.statuses.Wait(ctx, c.revision, c.ids)
}

// wait waits until a change is applied.
func (r *rig) wait(c commit) {
	r.t.Helper()
	if err := r.result(c); err != nil {
		r.t.Fatal(err)
	}
}

// eventually retries until the condition holds.
func (r *rig) eventually(what string, holds func() bool) {
	r.t.Helper()
	await.True(r.t, 10*time.Second, what, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return holds()
	})
}

// drainEvents returns the events since the last call.
func (r *rig) drainEvents() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.events
	r.events = nil
	return out
}

func (r *rig) wantEvents(want ...string) {
	r.t.Helper()
	if diff := cmp.Diff(strings.Join(want, "\n"), strings.Join(r.drainEvents(), "\n")); diff != "" {
		r.t.Errorf("events: -want +got\n%s", diff)
	}
}

// failOn makes events that end in what fail; "" means none.
func (r *rig) failOn(what string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = func(event string) error {
		if what != "" && strings.HasSuffix(event, what) {
			return err
		}
		return nil
	}
}

func (r *rig) status(kind, k string) status.Status {
	r.t.Helper()
	s, _ := r.statuses.Get(status.ID{Kind: kind, Key: k})
	return s
}

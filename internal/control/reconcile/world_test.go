package reconcile

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/control/desired"
	"loxilb/internal/control/health"
	"loxilb/internal/control/status"
	"loxilb/internal/control/store"
	"loxilb/internal/event"
	"loxilb/internal/kernel/datapath"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/netdev"
	"loxilb/internal/lb"
	"loxilb/test/await"
)

// world is the data path, the addresses, the sources and the endpoints in one, to record the order
// of events.
type world struct {
	mu       sync.Mutex
	events   []string
	services map[bpf.TcServiceKey]bool
	vips     map[netip.Addr]bool
	hosts    []netip.Addr
	notices  int
	fail     func(event string) error // nil: nothing fails
	wrote    func(datapath.Change)    // called with services that are written, unless nil
	hold     chan struct{}            // Apply waits until it is closed, unless nil
	source   netip.Addr               // the source that endpoints see; invalid: no route
	routed   bool                     // endpoints are behind a router
	lookups  int
	drains   []lb.Drain
	notified []string     // notifications of roles
	lookup   func() error // nil: lookups of sources succeed at once
}

func newWorld() *world {
	return &world{services: map[bpf.TcServiceKey]bool{}, vips: map[netip.Addr]bool{}}
}

func (w *world) SetDrains(drains []lb.Drain) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drains = drains
}

func (w *world) role(one lb.Instance) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notified = append(w.notified, one.Name+" "+string(one.Role))
}

func (w *world) note(format string, args ...any) error {
	event := fmt.Sprintf(format, args...)
	w.events = append(w.events, event)
	if w.fail != nil {
		return w.fail(event)
	}
	return nil
}

func (w *world) Apply(changes []datapath.Change) []error {
	w.mu.Lock()
	hold := w.hold
	w.mu.Unlock()
	if hold != nil {
		<-hold
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	errs := make([]error, len(changes))
	for i, c := range changes {
		if c.Table == nil {
			if errs[i] = w.note("delete %s", c.Key); errs[i] == nil {
				delete(w.services, c.Key)
			}
			continue
		}
		source := ""
		if a := c.Table.Endpoints[0].Source; a != (bpf.TcIpAddr{}) {
			source = " from " + a.Netip().String()
		}
		for _, e := range c.Table.Endpoints {
			if e.CurrentWeight == 0 && e.Weight > 0 {
				source += " without " + e.Addr.Netip().String()
			}
		}
		if errs[i] = w.note("put %s%s", c.Key, source); errs[i] == nil {
			w.services[c.Key] = true
		}
		if w.wrote != nil {
			w.wrote(c)
		}
	}
	return errs
}

func (w *world) Reserve(int, int) {}

func (w *world) CurrentWeights(bpf.TcServiceKey) map[netip.AddrPort]uint32 { return nil }

func (w *world) Services() []bpf.TcServiceKey {
	w.mu.Lock()
	defer w.mu.Unlock()
	var keys []bpf.TcServiceKey
	for k := range w.services {
		keys = append(keys, k)
	}
	return keys
}

// addresses is the world as the owner of VIPs: its method Set would clash with another one of
// world.
type addresses struct{ *world }

func failures(vips []netip.Addr, err error) map[netip.Addr]error {
	failed := map[netip.Addr]error{}
	for _, vip := range vips {
		if err != nil {
			failed[vip] = err
		}
	}
	return failed
}

func (a addresses) Set(_ context.Context, vips []netip.Addr) map[netip.Addr]error {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.vips)
	failed := map[netip.Addr]error{}
	for _, vip := range vips {
		one := []netip.Addr{vip}
		if a.fail != nil {
			maps.Copy(failed, failures(one, a.fail(fmt.Sprintf("own %v", one))))
		}
		a.vips[vip] = failed[vip] == nil
	}
	return failed
}

func (a addresses) Add(_ context.Context, vips ...netip.Addr) map[netip.Addr]error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.note("own %v", vips)
	for _, vip := range vips {
		a.vips[vip] = err == nil
	}
	return failures(vips, err)
}

func (a addresses) Remove(_ context.Context, vips ...netip.Addr) map[netip.Addr]error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.note("give up %v", vips)
	if err == nil {
		for _, vip := range vips {
			delete(a.vips, vip)
		}
	}
	return failures(vips, err)
}

// endpoints is the world as Endpoints.
type endpoints struct{ *world }

func (e endpoints) Update(changes map[netip.Addr]bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for a, added := range changes {
		if i, found := slices.BinarySearchFunc(e.hosts, a, netip.Addr.Compare); added && !found {
			e.hosts = slices.Insert(e.hosts, i, a)
		} else if !added && found {
			e.hosts = slices.Delete(e.hosts, i, i+1)
		}
	}
	e.notices++
}

// Paths looks up the paths to hosts in the world.
func (w *world) Paths(_ context.Context, hosts []netip.Addr) (found map[netip.Addr]netdev.Path, missing map[netip.Addr]error, err error) {
	w.mu.Lock()
	w.lookups++
	lookup, source, routed := w.lookup, w.source, w.routed
	w.mu.Unlock()
	if lookup != nil {
		if err := lookup(); err != nil {
			return nil, nil, err
		}
	}
	found = map[netip.Addr]netdev.Path{}
	for _, a := range hosts {
		if source.IsValid() {
			found[a] = netdev.Path{Source: source, Routed: routed}
		}
	}
	return found, nil, nil
}

// rig is a running loop of services over a store in memory.
type rig struct {
	*world
	t        testing.TB
	state    *desired.State
	services *Services
	health   *Health
	prober   *prober
	statuses *status.Table
	hub      *event.Hub
	swept    chan struct{}
	looks    atomic.Int32 // number of the loop's checks for changes
}

// commit is a committed change.
type commit struct {
	revision uint64
	ids      []status.ID
}

// newRig starts a rig with these services, and waits until they are applied.
func newRig(t testing.TB, w *world, services ...string) *rig {
	t.Helper()
	r := makeRig(t, w)
	c := r.put(services...)
	r.start()
	r.wait(c)
	return r
}

func makeRig(t testing.TB, w *world) *rig {
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
	r := &rig{world: w, t: t, state: state, statuses: status.NewTable(), hub: event.NewHub(), swept: make(chan struct{}, 10_000)}
	o := Observers{Statuses: r.statuses, Events: r.hub, Log: log}
	r.prober = &prober{targets: map[string]health.Target{}, states: map[string]health.Status{}}
	r.health = NewHealth(r.prober, o)
	r.services = NewServices(ServicesConfig{
		Observers: o, Desired: state, Tables: w, VIPs: addresses{w}, Sources: w,
		Endpoints: endpoints{w}, Health: r.health, Ended: func() { r.swept <- struct{}{} },
		Role: w.role,
	})
	feed := r.services.feed
	r.services.Loop.feed = func(ctx context.Context) { r.looks.Add(1); feed(ctx) }
	return r
}

func (r *rig) start() {
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan struct{})
	go func() { r.services.Run(ctx); close(done) }()
	r.t.Cleanup(func() { cancel(); <-done })
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

func (r *rig) try(c commit) error {
	ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
	defer cancel()
	return r.statuses.Wait(ctx, c.revision, c.ids)
}

// wait waits until a change is applied.
func (r *rig) wait(c commit) {
	r.t.Helper()
	if err := r.try(c); err != nil {
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
		r.t.Errorf("what happened: -want +got\n%s", diff)
	}
}

// breaks makes events that end in what fail from now on; "": none.
func (r *rig) breaks(what string, err error) {
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

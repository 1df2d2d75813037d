package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/internal/control/desired"
	"loxilb/internal/control/status"
	"loxilb/internal/control/store"
	"loxilb/internal/event"
	"loxilb/internal/kernel/netdev/netlink"
	"loxilb/internal/kernel/netdev/objects"
	"loxilb/internal/lb/netobj"
	"loxilb/test/netnstest/labtest"
)

// routeKernel is a kernel with routes, and the ledger of the routes that loxilb made.
type routeKernel struct {
	mu      sync.Mutex
	routes  map[string]netobj.Route
	records map[string][]byte
	fail    func(netobj.Route) error // error of Make
	made    int
	read    int // calls of All
	lookups int // calls of Lookup
}

// Absent reports whether there is no such route.
func (k *routeKernel) Absent(r netobj.Route) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, exists := k.routes[r.Key()]
	return !exists
}

// Lookup reads one route.
func (k *routeKernel) Lookup(r netobj.Route) (have []netobj.Route, known bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lookups++
	if was, exists := k.routes[r.Key()]; exists {
		have = append(have, was)
	}
	return have, true
}

func (k *routeKernel) All() (map[string][]netobj.Route, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.read++
	out := map[string][]netobj.Route{}
	for key, r := range k.routes {
		out[key] = []netobj.Route{r}
	}
	return out, nil
}

func (k *routeKernel) Make(r netobj.Route) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.records[r.Key()] == nil {
		return errors.New("it was not recorded before it was made")
	}
	if k.fail != nil {
		if err := k.fail(r); err != nil {
			return err
		}
	}
	if _, exists := k.routes[r.Key()]; exists {
		return unix.EEXIST
	}
	k.routes[r.Key()] = r
	k.made++
	return nil
}

func (k *routeKernel) Remove(r netobj.Route) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.routes, r.Key())
	return nil
}

func (k *routeKernel) Get(_, key string) []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.records[key]
}

func (k *routeKernel) Keys(string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Sorted(maps.Keys(k.records))
}

func (k *routeKernel) Record(_ string, objects map[string]any) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, o := range objects {
		k.records[key], _ = json.Marshal(o)
	}
	return nil
}

func (k *routeKernel) Forget(_ string, keys ...string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range keys {
		delete(k.records, key)
	}
	return nil
}

// locked runs f while no method of the kernel runs.
func (k *routeKernel) locked(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f()
}

// text returns the kernel's routes, and which of them loxilb made.
func (k *routeKernel) text() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []string
	for _, key := range slices.Sorted(maps.Keys(k.routes)) {
		line := k.routes[key].String()
		if k.records[key] != nil {
			line += " ours"
		}
		out = append(out, line)
	}
	for _, key := range slices.Sorted(maps.Keys(k.records)) {
		if _, exists := k.routes[key]; !exists {
			out = append(out, key+" only recorded")
		}
	}
	return strings.Join(out, ", ")
}

// kernelRig has a loop of routes, and a fake kernel.
type kernelRig struct {
	t *testing.T
	*routeKernel
	state    *desired.State
	statuses *status.Table
	loop     *NetObjects[netobj.Route]
}

// newKernelRig returns a rig whose loop runs.
func newKernelRig(t *testing.T, prepare func(*routeKernel)) *kernelRig {
	t.Helper()
	b := newStoppedKernelRig(t, prepare)
	runUntilEnd(t, b.loop.Run)
	return b
}

// newStoppedKernelRig returns a rig whose loop does not run.
func newStoppedKernelRig(t *testing.T, prepare func(*routeKernel)) *kernelRig {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	state, err := desired.Open("", log)
	if err != nil {
		t.Fatal(err)
	}
	b := &kernelRig{t: t, state: state, statuses: status.NewTable(), routeKernel: &routeKernel{routes: map[string]netobj.Route{}, records: map[string][]byte{}}}
	prepare(b.routeKernel)
	b.loop = NewNetObjects(state, state.Routes, b.routeKernel, b.routeKernel, Observers{b.statuses, event.NewHub(), log})
	t.Cleanup(func() { _ = state.Close() })
	return b
}

func route(t *testing.T, to, via string) netobj.Route {
	t.Helper()
	r, err := netobj.ParseRoute(to, via, "")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// apply changes the configured routes, waits until the loop has tried them, and returns their
// error.
func (b *kernelRig) apply(edit func(*store.Tx) error) error {
	b.t.Helper()
	revision, changed, err := b.state.Commit("test", edit)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.t.Context(), 10*time.Second)
	defer cancel()
	ids := make([]status.ID, len(changed))
	for i, id := range changed {
		ids[i] = status.ID(id)
	}
	return b.statuses.Wait(ctx, revision, ids)
}

func (b *kernelRig) put(r netobj.Route) error {
	b.t.Helper()
	return b.apply(func(tx *store.Tx) error { return b.state.Routes.Put(tx, r) })
}

func (b *kernelRig) delete(r netobj.Route) error {
	b.t.Helper()
	return b.apply(func(tx *store.Tx) error { return b.state.Routes.Delete(tx, r.Key()) })
}

// wantRoutes waits until the kernel has these routes.
func (b *kernelRig) wantRoutes(want string) {
	b.t.Helper()
	labtest.Eventually(b.t, 10*time.Second, func(context.Context) error {
		if got := b.text(); got != want {
			return fmt.Errorf("the kernel has %q, want %q", got, want)
		}
		return nil
	})
}

// TestNetObjectsOwn checks that a route is recorded before it is made, is replaced, made again
// after it disappears, and deleted. Equal routes of other owners suffice, and are never deleted.
func TestNetObjectsOwn(t *testing.T) {
	t.Parallel()
	foreign := route(t, "10.9.0.0/16", "10.0.0.9")
	foreign.Protocol = 16
	b := newKernelRig(t, func(k *routeKernel) { k.routes[foreign.Key()] = foreign })
	ours := route(t, "10.1.0.0/16", "10.0.0.1")
	if err := b.put(ours); err != nil {
		t.Fatal(err)
	}
	if err := b.put(route(t, "10.9.0.0/16", "10.0.0.9")); err != nil {
		t.Fatal(err)
	}
	b.wantRoutes("10.1.0.0/16 via 10.0.0.1 ours, 10.9.0.0/16 via 10.0.0.9")
	ours.Gateway = route(t, "10.1.0.0/16", "10.0.0.2").Gateway
	if err := b.put(ours); err != nil {
		t.Fatal(err)
	}
	b.wantRoutes("10.1.0.0/16 via 10.0.0.2 ours, 10.9.0.0/16 via 10.0.0.9")
	b.locked(func() { delete(b.routes, ours.Key()); delete(b.routes, foreign.Key()) })
	b.loop.KernelChanged(nil)
	b.wantRoutes("10.1.0.0/16 via 10.0.0.2 ours, 10.9.0.0/16 via 10.0.0.9 ours") // the other owner has removed its route, so this one is ours
	b.locked(func() { b.routes[foreign.Key()] = foreign; delete(b.records, foreign.Key()) })
	for _, r := range []netobj.Route{ours, foreign} {
		if err := b.delete(r); err != nil {
			t.Fatal(err)
		}
	}
	b.wantRoutes("10.9.0.0/16 via 10.0.0.9")
}

// TestNetObjectsInTheWay checks that a different route of another owner to the same network is left
// alone and reported, and that ours is made once that is removed. A route that the kernel refuses
// is retried, and not recorded meanwhile.
func TestNetObjectsInTheWay(t *testing.T) {
	t.Parallel()
	foreign := route(t, "10.9.0.0/16", "10.0.0.9")
	b := newKernelRig(t, func(k *routeKernel) {
		k.routes[foreign.Key()] = foreign
		k.fail = func(r netobj.Route) error {
			if r.Key() == "10.1.0.0/16" {
				return unix.ENETUNREACH
			}
			return nil
		}
	})
	err := b.put(route(t, "10.9.0.0/16", "10.0.0.1"))
	if err == nil || !strings.Contains(err.Error(), "the kernel has route 10.9.0.0/16 via 10.0.0.9 in its place, which loxilb has not made") {
		t.Errorf("in the way: %v", err)
	}
	if err := b.put(route(t, "10.1.0.0/16", "10.0.0.1")); err == nil {
		t.Error("a route that the kernel refuses counts as applied")
	}
	b.wantRoutes("10.9.0.0/16 via 10.0.0.9")
	b.locked(func() { b.fail = nil; delete(b.routes, foreign.Key()) })
	b.loop.KernelChanged(nil)
	b.wantRoutes("10.1.0.0/16 via 10.0.0.1 ours, 10.9.0.0/16 via 10.0.0.1 ours")
}

// TestNetObjectsCrash checks a start after a process that died before it deleted an unwanted route,
// and after one that died before it made a recorded one.
func TestNetObjectsCrash(t *testing.T) {
	t.Parallel()
	b := newKernelRig(t, func(k *routeKernel) {
		stray := route(t, "10.8.0.0/16", "10.0.0.1")
		k.routes[stray.Key()] = stray
		_ = k.Record("", map[string]any{stray.Key(): stray, "10.7.0.0/16": route(t, "10.7.0.0/16", "10.0.0.1")})
	})
	b.wantRoutes("")
}

// TestNetObjectsRouter checks that changes of other routes cost nothing, as on a router where they
// change all the time. If a configured route disappears, it is made again, and the whole table is
// read at most once: a lookup skips routes that the kernel ignores.
func TestNetObjectsRouter(t *testing.T) {
	t.Parallel()
	b := newKernelRig(t, func(*routeKernel) {})
	ours := route(t, "10.1.0.0/16", "10.0.0.1")
	if err := b.put(ours); err != nil {
		t.Fatal(err)
	}
	b.wantRoutes("10.1.0.0/16 via 10.0.0.1 ours")
	var before int
	b.locked(func() { before = b.lookups })
	for i := range 10_000 {
		b.loop.KernelChanged([]string{fmt.Sprintf("20.%d.%d.0/24", i/256, i%256)})
	}
	b.locked(func() {
		if b.lookups != before || b.read != 0 {
			t.Errorf("changes of other routes: %d looked up, all read %d times", b.lookups-before, b.read)
		}
		delete(b.routes, ours.Key())
	})
	b.loop.KernelChanged([]string{ours.Key()})
	labtest.Eventually(t, 10*time.Second, func(context.Context) (err error) {
		b.locked(func() {
			if b.made != 2 {
				err = fmt.Errorf("the route was made %d times", b.made)
			}
		})
		return err
	})
	b.locked(func() {
		if b.read > 1 {
			t.Errorf("all routes were read %d times", b.read)
		}
	})
}

// TestNetObjectsIgnored checks that a route of ours that the kernel ignores, as its link has no
// carrier, exists and stays ours.
func TestNetObjectsIgnored(t *testing.T) {
	t.Parallel()
	a, peer := labtest.Pair(t)
	ns, err := netlink.OpenNamespace(a.Path())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	kernel, err := objects.Open(ns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kernel.Close)
	routes := objects.Routes{Kernel: kernel}
	made, err := kernel.OpenLedger("")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	state, err := desired.Open("", log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = state.Close() })
	n := NewNetObjects(state, state.Routes, routes, made, Observers{status.NewTable(), event.NewHub(), log})
	wanted := route(t, "10.6.0.0/16", "10.1.0.2")
	apply := func(what string) {
		t.Helper()
		if err := n.Apply(t.Context(), []string{wanted.Key()})[0].Err; err != nil || made.Get(netobj.RouteKind, wanted.Key()) == nil {
			t.Fatalf("%s: got %v, recorded: %t", what, err, made.Get(netobj.RouteKind, wanted.Key()) != nil)
		}
	}
	if _, _, err := state.Commit("test", func(tx *store.Tx) error { return state.Routes.Put(tx, wanted) }); err != nil {
		t.Fatal(err)
	}
	apply("a new route")
	labtest.Run(t, a, "sysctl", "-qw", "net.ipv4.conf.all.ignore_routes_with_linkdown=1", "net.ipv4.conf.eth0.ignore_routes_with_linkdown=1")
	labtest.Run(t, peer, "ip", "link", "set", "eth0", "down")
	labtest.Eventually(t, 10*time.Second, func(context.Context) error {
		if have, known := routes.Lookup(wanted); !known || len(have) > 0 {
			return fmt.Errorf("looked up: %v, known %t", have, known)
		}
		return nil
	})
	apply("without carrier")
}

// TestNetObjectsExists checks that a route of ours stays ours if it was not found, and the kernel
// then reports that it exists.
func TestNetObjectsExists(t *testing.T) {
	t.Parallel()
	ours := route(t, "10.1.0.0/16", "10.0.0.1")
	b := newStoppedKernelRig(t, func(k *routeKernel) {
		k.fail = func(netobj.Route) error { return unix.EEXIST }
		k.records[ours.Key()], _ = json.Marshal(ours)
	})
	_, _, err := b.state.Commit("test", func(tx *store.Tx) error { return b.state.Routes.Put(tx, ours) })
	if err != nil {
		t.Fatal(err)
	}
	if out := b.loop.Apply(t.Context(), []string{ours.Key()}); out[0].Err == nil {
		t.Error("an object that exists already was made")
	}
	if b.Get("", ours.Key()) == nil {
		t.Error("the object is forgotten")
	}
}

// TestNetObjectsStorm checks that a new route does not cause a full read, that frequent changes of
// the kernel are read at a bounded rate, and that no route is made twice.
func TestNetObjectsStorm(t *testing.T) {
	t.Parallel()
	b := newKernelRig(t, func(*routeKernel) {})
	err := b.apply(func(tx *store.Tx) (err error) {
		for i := range 1000 {
			err = errors.Join(err, b.state.Routes.Put(tx, route(t, fmt.Sprintf("10.%d.%d.0/24", i/256, i%256), "192.168.0.1")))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	b.locked(func() {
		if b.read != 0 {
			t.Errorf("all routes were read %d times for new ones", b.read)
		}
	})
	for range 10_000 {
		b.loop.KernelChanged(nil)
	}
	labtest.Eventually(t, 10*time.Second, func(context.Context) (err error) {
		b.locked(func() {
			if b.read == 0 {
				err = errors.New("not read yet")
			}
		})
		return err
	})
	b.locked(func() {
		if len(b.routes) != 1000 || b.made != 1000 || b.read > 2 {
			t.Errorf("%d routes, %d made, all read %d times", len(b.routes), b.made, b.read)
		}
	})
}

package reconcile

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/control/compile"
	"loxilb/internal/control/health"
	"loxilb/internal/control/store"
	"loxilb/internal/event"
	"loxilb/internal/kernel/datapath"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kinds"
	"loxilb/internal/lb"
	"loxilb/internal/lb/bgp"
	"loxilb/test/await"
)

// routers are the neighbors. They have the routes that were set last.
type routers struct {
	mu     sync.Mutex
	routes map[netip.Prefix]bgp.Attributes
	calls  int
	fail   error
}

func (r *routers) SetRoutes(_ context.Context, routes []bgp.Route) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	if r.fail != nil {
		return r.fail
	}
	r.routes = map[netip.Prefix]bgp.Attributes{}
	for _, one := range routes {
		r.routes[one.Prefix] = one.Attributes
	}
	return nil
}

// text returns the routes: "10.0.0.1/32 MED 10 LP 5000 [1:2]".
func (r *routers) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []string
	for p, a := range r.routes {
		s := p.String()
		if a.MED > 0 {
			s += fmt.Sprintf(" MED %d", a.MED)
		}
		if a.LocalPref > 0 {
			s += fmt.Sprintf(" LP %d", a.LocalPref)
		}
		for _, c := range a.Communities {
			s += " " + c.String()
		}
		list = append(list, s)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// receivers records which endpoints get new connections, from the written tables.
type receivers struct {
	mu       sync.Mutex
	services map[bpf.TcServiceKey][]bool
}

func (k *receivers) wrote(c datapath.Change) {
	k.mu.Lock()
	defer k.mu.Unlock()
	available := make([]bool, len(c.Table.Endpoints))
	for i, e := range c.Table.Endpoints {
		available[i] = e.CurrentWeight > 0
	}
	k.services[c.Key] = available
}

// routeRig is a rig whose routes are announced to routers.
type routeRig struct {
	*rig
	routes  *Routes
	routers *routers
	held    atomic.Pointer[string] // why nothing may be announced; nil: it may
}

func newRouteRig(t testing.TB, services ...string) *routeRig {
	t.Helper()
	w, k := newFakeKernel(), &receivers{services: map[bpf.TcServiceKey][]bool{}}
	w.onWrite = k.wrote
	r := &routeRig{rig: newStoppedRig(t, w), routers: &routers{}}
	r.routes = NewRoutes(RoutesConfig{
		Observers: r.services.Observers, Desired: r.state, Announcer: r.routers, Health: r.health,
		Held: func() string {
			if why := r.held.Load(); why != nil {
				return *why
			}
			return ""
		},
		Receiving: func(key lb.Key) ([]bool, bool) {
			row := compile.Key(key)
			w.mu.Lock()
			exists := w.services[row]
			w.mu.Unlock()
			k.mu.Lock()
			defer k.mu.Unlock()
			return k.services[row], exists
		},
	})
	r.services.FollowPasses(r.routes.Mark)
	c := r.put(services...)
	r.start()
	runUntilEnd(t, r.routes.Run)
	r.wait(c)
	return r
}

func (r *routeRig) want(want string) {
	r.t.Helper()
	var got string
	defer func() {
		if got != want {
			r.t.Errorf("routes are %s, want %s", got, want)
		}
	}()
	await.True(r.t, 10*time.Second, "routes "+want, func() bool { got = r.routers.text(); return got == want })
}

func (r *routeRig) why(service string) string {
	r.t.Helper()
	s, err := lb.ParseService(service)
	if err != nil {
		r.t.Fatal(err)
	}
	var list []string
	for _, a := range r.routes.Announcements(&s) {
		list = append(list, fmt.Sprintf("%s %t: %s", a.Prefix, a.Announced, a.Why))
	}
	return strings.Join(list, ", ")
}

func (r *routeRig) maintain(one *lb.Maintenance) {
	r.t.Helper()
	r.commit(func(tx *store.Tx) error {
		if one == nil && r.state.Maintenance.OfThisNode(tx) == nil {
			return nil
		}
		if one == nil {
			return tx.Delete(r.state.Maintenance.ID(kinds.MaintenanceKey))
		}
		return r.state.Maintenance.Put(tx, *one)
	})
}

const (
	routed    = "10.0.0.1:80/tcp endpoints=192.168.1.1:80,192.168.1.2:80 monitor=true bgp=true"
	routed443 = "10.0.0.1:443/tcp endpoints=192.168.1.3:80 bgp=true bgp-communities=1:2"
	unrouted  = "10.0.0.9:80/tcp endpoints=192.168.1.1:80"
)

// TestRoutes checks that a VIP is announced while one of its services can serve, with the
// attributes of roles and of maintenance.
func TestRoutes(t *testing.T) {
	t.Parallel()
	r := newRouteRig(t, routed, unrouted)
	await.True(t, 10*time.Second, "the reason", func() bool { return r.why(routed) == "10.0.0.1/32 false: the data path is starting" })
	r.routes.Open()
	r.setHealth("192.168.1.1_tcp_80", health.Up)
	r.setHealth("192.168.1.2_tcp_80", health.Up)
	r.want("10.0.0.1/32")
	<-r.routes.Current()
	events := r.hub.Subscribe(event.KindVIP)
	r.setHealth("192.168.1.1_tcp_80", health.Down)
	r.setHealth("192.168.1.2_tcp_80", health.Down)
	r.want("")
	if got := r.why(routed); got != "10.0.0.1/32 false: no endpoint takes connections" {
		t.Errorf(`got %v, want "10.0.0.1/32 false: no endpoint takes connections"`, got)
	}
	r.wait(r.put(routed443))
	r.want("10.0.0.1/32 1:2")
	r.setHealth("192.168.1.2_tcp_80", health.Up)
	r.role(lb.DefaultInstance, lb.RoleMaster)
	r.want("10.0.0.1/32 MED 10 LP 5000 1:2")
	r.role(lb.DefaultInstance, lb.RoleBackup)
	r.want("10.0.0.1/32 MED 20 LP 100 1:2")
	r.role(lb.DefaultInstance, lb.RoleFault)
	r.want("")
	r.role(lb.DefaultInstance, lb.RoleUnknown)
	r.want("10.0.0.1/32 1:2")
	r.maintain(&lb.Maintenance{})
	r.want("10.0.0.1/32 MED 100 LP 1 1:2 graceful-shutdown")
	r.maintain(&lb.Maintenance{Drained: true})
	r.want("")
	if got := r.routes.Applied(); got != lb.Drained {
		t.Errorf("neighbors have the routes of stage %s", got)
	}
	r.maintain(nil)
	r.want("10.0.0.1/32 1:2")
	r.wait(r.delete("10.0.0.1:80/tcp", "10.0.0.1:443/tcp"))
	r.want("")
	var got []string
	for e, _, more := events.Poll(); more; e, _, more = events.Poll() {
		got = append(got, e.String())
	}
	want := []string{
		"VIP 10.0.0.1/32 withdrawn: no endpoint takes connections", "VIP 10.0.0.1/32 announced: an endpoint takes connections",
		"VIP 10.0.0.1/32 withdrawn: the role of this node for llb-inst0 is FAULT", "VIP 10.0.0.1/32 announced: an endpoint takes connections",
		"VIP 10.0.0.1/32 withdrawn: the node is drained", "VIP 10.0.0.1/32 announced: an endpoint takes connections",
		"VIP 10.0.0.1/32 withdrawn: no service has it",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events: -want +got\n%s", diff)
	}
}

// TestRoutesHeld checks that nothing is announced while the node is held, with the reason.
func TestRoutesHeld(t *testing.T) {
	t.Parallel()
	r := newRouteRig(t, routed443)
	why := "other nodes refuse this one"
	hold := func(why *string) {
		r.held.Store(why)
		r.routes.MarkAll()
	}
	hold(&why)
	r.routes.Open()
	<-r.routes.Current()
	r.want("")
	if all := r.routes.All(); len(all) != 1 || all[0].Announced || all[0].Why != why {
		t.Errorf("got %+v, want 1 element, not all[0].Announced, all[0].Why == why", all)
	}
	hold(nil)
	r.want("10.0.0.1/32 1:2")
	hold(&why)
	r.want("")
}

// TestRoutesReturn checks that a node that was cut off announces a VIP of several services once all
// of them have an endpoint, or after releasedWait: probes do not finish at the same time, and
// another node serves all services.
func TestRoutesReturn(t *testing.T) {
	t.Parallel()
	r := newRouteRig(t, routed, "10.0.0.1:443/tcp endpoints=192.168.1.3:80 monitor=true bgp=true")
	endpoints := []string{"192.168.1.1_tcp_80", "192.168.1.2_tcp_80", "192.168.1.3_tcp_80"}
	all := func(state health.State) {
		for _, e := range endpoints {
			r.setHealth(e, state)
		}
	}
	all(health.Up)
	r.routes.Open()
	r.want("10.0.0.1/32")
	why := "this node is cut off"
	for _, second := range []health.State{health.Up, health.Down} {
		r.held.Store(&why)
		r.routes.MarkAll()
		r.want("")
		all(health.Down)
		r.held.Store(nil)
		r.routes.MarkAll()
		await.True(t, 10*time.Second, "the return", func() bool { return !strings.Contains(r.why(routed), why) })
		events := r.hub.Subscribe(event.KindVIP)
		r.setHealth(endpoints[0], health.Up)
		await.True(t, 10*time.Second, "the reason", func() bool { return strings.Contains(r.why(routed), "another service of the VIP") })
		r.setHealth(endpoints[2], second)
		r.want("10.0.0.1/32")
		if e, _, more := events.Poll(); !more || !strings.Contains(e.String(), "announced") {
			t.Errorf("the first event is %v", e)
		}
	}
}

// TestRoutesWait checks which VIPs wait for all of their services: VIPs that are not announced, on
// a node that is no longer held, if a service would refuse its clients.
func TestRoutesWait(t *testing.T) {
	t.Parallel()
	refuses := compile.Claim{Applied: true}
	always := refuses
	always.Announce = lb.AnnounceAlways
	for name, c := range map[string]struct {
		second    compile.Claim
		announced bool // before
		since     time.Duration
		want      bool
	}{
		"just returned":       {refuses, false, 0, false},
		"announced":           {refuses, true, 0, true},
		"long ago":            {refuses, false, releasedWait, true},
		"serves, too":         {compile.Claim{Applied: true, Serving: true}, false, 0, true},
		"announced always":    {always, false, 0, true},
		"not in place at all": {compile.Claim{}, false, 0, true},
	} {
		vip, first, second := netip.MustParsePrefix("10.0.0.1/32"), lb.Key{Port: 80}, lb.Key{Port: 443}
		r := &Routes{
			prefixes: map[netip.Prefix]*prefixState{vip: {keys: []lb.Key{first, second}, Decision: compile.Decision{Announced: c.announced}}},
			services: map[lb.Key]claimant{first: {Claim: compile.Claim{Applied: true, Serving: true}}, second: {Claim: c.second}},
			released: time.Now().Add(-c.since), stage: lb.InService,
		}
		r.decide(keySetOf(r.prefixes))
		if got := r.prefixes[vip]; got.Announced != c.want {
			t.Errorf("%s: announced: %t, %s", name, got.Announced, got.Why)
		}
	}
}

// TestRoutesStart checks that a node that starts announces a VIP at once although one of its
// services has no endpoint: the first routes have already waited for probes.
func TestRoutesStart(t *testing.T) {
	t.Parallel()
	r := newRouteRig(t, routed443, "10.0.0.1:80/tcp endpoints=192.168.1.1:80 monitor=true bgp=true")
	r.setHealth("192.168.1.1_tcp_80", health.Down)
	why := "the connections of the other nodes are not here yet"
	for _, held := range []*string{&why, nil} {
		r.held.Store(held)
		r.routes.MarkAll()
		await.True(t, 10*time.Second, "the reason", func() bool {
			r.routes.view.RLock()
			defer r.routes.view.RUnlock()
			return (r.routes.held == "") == (held == nil)
		})
	}
	r.routes.Open()
	<-r.routes.Current()
	if got, want := r.routers.text(), "10.0.0.1/32 1:2"; got != want {
		t.Errorf("the first routes are %q, want %q", got, want)
	}
}

// TestRoutesOfUnprobed checks that a VIP waits for the first probe of its endpoints, and is not
// withdrawn when their state becomes unknown.
func TestRoutesOfUnprobed(t *testing.T) {
	t.Parallel()
	r := newRouteRig(t, routed443)
	r.routes.Open()
	r.want("10.0.0.1/32 1:2")
	const slow = "10.0.0.2:80/tcp endpoints=192.168.1.4:80 monitor=true bgp=true"
	r.wait(r.put(slow))
	await.True(t, 10*time.Second, "the reason", func() bool {
		return r.why(slow) == "10.0.0.2/32 false: the endpoints were not probed yet"
	})
	r.setHealth("192.168.1.4_tcp_80", health.Up)
	r.want("10.0.0.1/32 1:2, 10.0.0.2/32")
	r.setHealth("192.168.1.4_tcp_80", health.Unknown)
	r.wait(r.put("10.0.0.3:80/tcp endpoints=192.168.1.5:80 bgp=true"))
	r.want("10.0.0.1/32 1:2, 10.0.0.2/32, 10.0.0.3/32")
}

// TestRoutesRetry checks that routes that could not be set are set later, with their events.
func TestRoutesRetry(t *testing.T) {
	t.Parallel()
	r := newRouteRig(t, routed443)
	r.routers.fail = fmt.Errorf("no memory")
	events := r.hub.Subscribe(event.KindVIP)
	r.routes.Open()
	await.True(t, 10*time.Second, "a status", func() bool { return r.status(TaskKind, "routes").Err != nil })
	r.routers.mu.Lock()
	r.routers.fail = nil
	r.routers.mu.Unlock()
	r.want("10.0.0.1/32 1:2")
	await.True(t, 10*time.Second, "an event", func() bool { _, _, ok := events.Poll(); return ok })
}

// TestRandomRoutes changes services, endpoints, roles and maintenance at random, and compares the
// routes with those of all services decided at once.
func TestRandomRoutes(t *testing.T) {
	t.Parallel()
	r := newRouteRig(t)
	r.routes.Open()
	random := rand.New(rand.NewPCG(3, 4))
	roles := []lb.Role{lb.RoleMaster, lb.RoleBackup, lb.RoleFault, lb.RoleUnknown}
	present := map[string]bool{}
	for range 1000 {
		n := random.IntN(8)
		key := fmt.Sprintf("10.0.0.%d:%d/tcp", 1+n/2, 80+n%2)
		switch random.IntN(10) {
		case 0, 1, 2:
			r.put(fmt.Sprintf("%s endpoints=192.168.1.%d:80:%d bgp=true bgp-med=%d name=x:%d", key, n, random.IntN(2), random.IntN(3), random.IntN(3)))
			present[key] = true
		case 3:
			if present[key] {
				r.delete(key)
				delete(present, key)
			}
		case 4, 5:
			instance := fmt.Sprint(random.IntN(3))
			role := roles[random.IntN(len(roles))]
			r.commit(func(tx *store.Tx) error { return r.state.Instances.Put(tx, lb.Instance{Name: instance, Role: role}) })
		case 6:
			at := netip.AddrFrom4([4]byte{192, 168, 1, byte(n)})
			r.commit(func(tx *store.Tx) error {
				if _, exists := r.state.Drains.Get(tx, at.String()); exists {
					return tx.Delete(r.state.Drains.ID(at.String()))
				}
				return r.state.Drains.Put(tx, lb.Drain{Addr: at, Rate: 1})
			})
		case 7:
			r.maintain(&lb.Maintenance{Drained: random.IntN(4) == 0})
		case 8:
			r.maintain(nil)
		}
	}
	r.maintain(&lb.Maintenance{})
	r.want(r.desiredRoutes())
}

// desiredRoutes returns the routes of all services, decided at once.
func (r *routeRig) desiredRoutes() string {
	snapshot := r.state.Snapshot()
	claims := map[netip.Prefix][]compile.Claim{}
	roles := r.state.Instances.OfThisNode(snapshot)
	for s := range r.state.Services.All(snapshot) {
		weighed := r.state.Drains.Apply(snapshot, s)
		for _, p := range s.AnnouncedPrefixes() {
			claims[p] = append(claims[p], compile.Claim{
				Announcement: s.Announcement, Role: roles[s.Instance()].Role, Applied: true, Serving: weighed.Endpoints[0].Weight > 0,
			})
		}
	}
	all := &routers{routes: map[netip.Prefix]bgp.Attributes{}}
	for p, list := range claims {
		if d := compile.Decide(list, r.state.Maintenance.OfThisNode(snapshot).Stage()); d.Announced {
			all.routes[p] = d.Attributes
		}
	}
	return all.text()
}

// BenchmarkRoutes measures the reaction to the failure of one endpoint among 10,000 services.
func BenchmarkRoutes(b *testing.B) {
	const services = 10_000
	r := &routeCounter{}
	routes, receiving := manyRoutes(b, services, r)
	key := lb.Key{VIP: vipOf(17), Port: 80, Protocol: lb.TCP}
	for b.Loop() {
		receiving[key] = !receiving[key]
		routes.dirty[key] = struct{}{}
		if err := routes.apply(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(r.routes), "routes")
}

// routeCounter counts routes. A real speaker would double the cost.
type routeCounter struct{ routes int }

func (l *routeCounter) SetRoutes(_ context.Context, routes []bgp.Route) error {
	l.routes = len(routes)
	return nil
}

func vipOf(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}) }

// manyRoutes announces the VIPs of many services. The map has the services with an endpoint.
func manyRoutes(t testing.TB, services int, to Announcer) (*Routes, map[lb.Key]bool) {
	t.Helper()
	rig := newStoppedRig(t, newFakeKernel())
	receiving := map[lb.Key]bool{}
	rig.commit(func(tx *store.Tx) error {
		for n := range services {
			key := lb.Key{VIP: vipOf(n), Port: 80, Protocol: lb.TCP}
			receiving[key] = true
			s := lb.Service{Key: key, BGP: true, Endpoints: []lb.Endpoint{{Addr: netip.MustParseAddr("192.168.1.1"), Port: 80, Weight: 1}}}
			if err := rig.state.Services.Put(tx, s); err != nil {
				return err
			}
		}
		return nil
	})
	o := rig.services.Observers
	o.Log = slog.New(slog.DiscardHandler)
	routes := NewRoutes(RoutesConfig{
		Observers: o, Desired: rig.state, Announcer: to, Health: rig.health, Held: func() string { return "" },
		Receiving: func(key lb.Key) ([]bool, bool) { return []bool{receiving[key]}, true },
	})
	routes.Open()
	if err := routes.apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	return routes, receiving
}

package reconcile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/control/compile"
	"loxilb/internal/control/health"
	"loxilb/internal/control/status"
	"loxilb/internal/control/store"
	"loxilb/internal/event"
	"loxilb/internal/kinds"
	"loxilb/internal/lb"
)

// fakeProber has the states that a test sets, and keeps them like health.Monitor.
type fakeProber struct {
	mu       sync.Mutex
	targets  map[string]health.Target
	states   map[string]health.Status
	recorded []string

	onOverride func() // called by Override unless nil
}

func newFakeProber() *fakeProber {
	return &fakeProber{targets: map[string]health.Target{}, states: map[string]health.Status{}}
}

func (p *fakeProber) Set(key string, t health.Target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	what := "set"
	if _, exists := p.targets[key]; exists {
		what = "change"
	}
	p.targets[key] = t
	if what == "set" {
		p.states[key] = health.Status{}
	}
	p.recorded = append(p.recorded, fmt.Sprintf("%s %s: %s %s every %s", what, key, t.Probe.Type, netip.AddrPortFrom(t.Addr, t.Port), t.Probe.Interval))
}

func (p *fakeProber) Remove(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.targets, key)
	delete(p.states, key)
	p.recorded = append(p.recorded, "remove "+key)
}

func (p *fakeProber) Status(key string) (health.Status, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, ok := p.states[key]
	return s, ok
}

func (p *fakeProber) State(key string) (state, probe health.State, ok bool) {
	s, ok := p.Status(key)
	return s.State, s.ProbeState, ok
}

func (p *fakeProber) Override(key string, s health.State, evidence string) {
	if p.onOverride != nil {
		p.onOverride()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recorded = append(p.recorded, fmt.Sprintf("override %s: %s %s", key, s, evidence))
}

func (p *fakeProber) Eject(key, evidence string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recorded = append(p.recorded, fmt.Sprintf("eject %s: %s", key, evidence))
}

// calls returns the calls of the prober since the last call of calls, sorted.
func (p *fakeProber) calls() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.recorded
	p.recorded = nil
	slices.Sort(out)
	return out
}

// setHealth sets the state of a target, and notifies the loop.
func (r *rig) setHealth(key string, state health.State) {
	r.t.Helper()
	p := r.prober
	p.mu.Lock()
	s, ok := p.states[key]
	if !ok {
		p.mu.Unlock()
		r.t.Fatalf("%s is not probed", key)
	}
	s.History = append(s.History, health.Change{At: time.Now(), From: s.State, To: state, Evidence: "seen"})
	s.State, s.ProbeState = state, state
	p.states[key] = s
	p.mu.Unlock()
	r.health.Changed(key)
}

func (r *rig) wantCalls(want ...string) {
	r.t.Helper()
	if diff := cmp.Diff(strings.Join(want, "\n"), strings.Join(r.prober.calls(), "\n")); diff != "" {
		r.t.Errorf("the calls of the prober differ (-want +got):\n%s", diff)
	}
}

// wantApplied waits until exactly these changes were written to the data path.
func (r *rig) wantApplied(want ...string) {
	r.t.Helper()
	r.eventually("applied: "+strings.Join(want, ", "), func() bool {
		return slices.Equal(r.events, want)
	})
	r.drainEvents()
}

const (
	monitored  = "10.0.0.1:80/tcp endpoints=192.168.1.1:80,192.168.1.2:80 monitor=true"
	monitored2 = "10.0.0.1:443/tcp endpoints=192.168.1.1:80 monitor=true"
)

// TestAssumedUp checks that there is no event when an unprobed endpoint is assumed to be up, and
// one each when it goes down and up.
func TestAssumedUp(t *testing.T) {
	t.Parallel()
	const key = "192.168.1.1_none_0"
	r := newRig(t, newFakeKernel(), "10.0.0.1:80/tcp endpoints=192.168.1.1:80 monitor=true probetype=none")
	news := r.hub.Subscribe(event.KindHealth)
	for _, state := range []health.State{health.Up, health.Down, health.Up} {
		r.setHealth(key, state)
	}
	const of = " (192.168.1.1_none_0, of 10.0.0.1:80/tcp)"
	for _, want := range []string{"endpoint 192.168.1.1 is down: seen" + of, "endpoint 192.168.1.1 is up: seen" + of} {
		if e, _, ok := news.Poll(); !ok || e.String() != want {
			t.Errorf("got event %v, want %s", e, want)
		}
	}
}

// TestFirstFailures checks that a service whose endpoints have all failed their first probes does
// not refuse clients before enough probes confirm that. If another endpoint is up, only that gets
// connections.
func TestFirstFailures(t *testing.T) {
	t.Parallel()
	s := service(t, "10.0.0.1:80/tcp endpoints=192.168.1.1:80,192.168.1.2:80 probetype=tcp")
	first := health.Status{State: health.Down, ProbeState: health.Down, Unconfirmed: true}
	confirmed := health.Status{State: health.Down, ProbeState: health.Down}
	reported := first
	reported.Overridden = true
	for _, c := range []struct {
		one, two health.Status
		up       string
	}{
		{first, first, "12"}, {first, confirmed, "1."}, {confirmed, confirmed, ".."}, {reported, reported, ".."},
		{first, health.Status{}, ".2"}, {first, health.Status{State: health.Up, ProbeState: health.Up}, ".2"},
	} {
		p, fake := newFakeProbes(t, s)
		fake.states[p.keyOf(s, s.Endpoints[0])], fake.states[p.keyOf(s, s.Endpoints[1])] = c.one, c.two
		if got := usable(p, s); got != c.up {
			t.Errorf("%+v: %s are up", c, got)
		}
	}
}

// TestHealth checks that services that monitor an endpoint avoid it while it is down, that other
// services do not, and that an endpoint of several services has one probe.
func TestHealth(t *testing.T) {
	t.Parallel()
	r := newRig(t, newFakeKernel(), monitored, monitored2, "10.0.0.2:80/tcp endpoints=192.168.1.1:80")
	r.wantCalls("set 192.168.1.1_tcp_80: tcp 192.168.1.1:80 every 2s", "set 192.168.1.2_tcp_80: tcp 192.168.1.2:80 every 2s")
	r.drainEvents()
	news := r.hub.Subscribe(event.KindHealth)
	r.setHealth("192.168.1.1_tcp_80", health.Up)
	r.wantApplied("put 10.0.0.1:80/tcp", "put 10.0.0.1:443/tcp")
	r.setHealth("192.168.1.1_tcp_80", health.Down)
	r.wantApplied("put 10.0.0.1:80/tcp without 192.168.1.1", "put 10.0.0.1:443/tcp without 192.168.1.1")
	r.setHealth("192.168.1.2_tcp_80", health.Down)
	r.wantApplied("put 10.0.0.1:80/tcp without 192.168.1.1 without 192.168.1.2")
	r.setHealth("192.168.1.1_tcp_80", health.Up)
	r.wantApplied("put 10.0.0.1:80/tcp without 192.168.1.2", "put 10.0.0.1:443/tcp")
	const of1, of2 = " (192.168.1.1_tcp_80, of 10.0.0.1:80/tcp, 10.0.0.1:443/tcp)", " (192.168.1.2_tcp_80, of 10.0.0.1:80/tcp)"
	for _, want := range []string{
		"endpoint 192.168.1.1:80 is up: seen" + of1, "endpoint 192.168.1.1:80 is down: seen" + of1, "endpoint 192.168.1.2:80 is down: seen" + of2,
		"endpoint 192.168.1.1:80 is up: seen" + of1,
	} {
		if e, _, ok := news.Poll(); !ok || e.String() != want {
			t.Errorf("got event %v, want %s", e, want)
		}
	}
	// A service that is applied for another reason still avoids the endpoint.
	r.wait(r.put(strings.Replace(monitored, "monitor", "mss=1400 monitor", 1)))
	r.wantEvents("put 10.0.0.1:80/tcp without 192.168.1.2")
	r.wantCalls()
	var got []string
	for e := range r.health.Endpoints {
		got = append(got, fmt.Sprint(e.Key(), " ", e.State, " ", e.Changes, " ", e.Services, " ", e.Object))
	}
	want := []string{"192.168.1.1_tcp_80 up 3 [10.0.0.1:80/tcp 10.0.0.1:443/tcp] false", "192.168.1.2_tcp_80 down 1 [10.0.0.1:80/tcp] false"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the endpoints differ (-want +got):\n%s", diff)
	}
	// The last service removes its probes.
	r.wait(r.delete("10.0.0.1:80/tcp"))
	r.wantCalls("remove 192.168.1.2_tcp_80")
	r.wait(r.delete("10.0.0.1:443/tcp"))
	r.wantCalls("remove 192.168.1.1_tcp_80")
}

// TestMonitorInPlace checks that monitoring can be turned on and off, and that a changed probe
// keeps its state.
func TestMonitorInPlace(t *testing.T) {
	t.Parallel()
	const off = "10.0.0.1:80/tcp endpoints=192.168.1.1:80"
	r := newRig(t, newFakeKernel(), off)
	r.wantCalls()
	r.wait(r.put(off + " monitor=true"))
	r.wantCalls("set 192.168.1.1_tcp_80: tcp 192.168.1.1:80 every 2s")
	r.drainEvents()
	r.setHealth("192.168.1.1_tcp_80", health.Down)
	r.wantApplied("put 10.0.0.1:80/tcp without 192.168.1.1")
	r.wait(r.put(off + " monitor=true probe-interval=500ms"))
	r.wantCalls("change 192.168.1.1_tcp_80: tcp 192.168.1.1:80 every 500ms")
	r.wantEvents("put 10.0.0.1:80/tcp without 192.168.1.1")
	r.wait(r.put(off + " monitor=true all-down=panic"))
	r.wantEvents("put 10.0.0.1:80/tcp")
	r.wait(r.put(off))
	r.wantCalls("change 192.168.1.1_tcp_80: tcp 192.168.1.1:80 every 2s", "remove 192.168.1.1_tcp_80")
	r.wantEvents("put 10.0.0.1:80/tcp")
}

// TestTwoProbesOfOnePort checks that services with different probe settings for one port have
// separate probes.
func TestTwoProbesOfOnePort(t *testing.T) {
	t.Parallel()
	a := "10.0.0.1:80/tcp endpoints=192.168.1.1:80 probetype=http probereq=/a"
	b := "10.0.0.2:80/tcp endpoints=192.168.1.1:80 probetype=http probereq=/b"
	r := newRig(t, newFakeKernel(), a, b)
	r.wantCalls("set 192.168.1.1_http_80/2: http 192.168.1.1:80 every 2s", "set 192.168.1.1_http_80: http 192.168.1.1:80 every 2s")
	r.drainEvents()
	r.setHealth("192.168.1.1_http_80/2", health.Down)
	r.wantApplied("put 10.0.0.2:80/tcp without 192.168.1.1")
	// With the same settings again, they share a probe.
	r.wait(r.put(strings.Replace(b, "/b", "/a", 1)))
	r.wantCalls("remove 192.168.1.1_http_80/2")
	r.wantEvents("put 10.0.0.2:80/tcp")
}

// TestFailedChangeKeepsProbes checks that probes stay after a change that the data path refuses.
func TestFailedChangeKeepsProbes(t *testing.T) {
	t.Parallel()
	const before = "10.0.0.1:80/tcp endpoints=192.168.1.1:80 monitor=true"
	r := newRig(t, newFakeKernel(), before)
	r.prober.calls()
	r.failOn("put 10.0.0.1:80/tcp", errBroken)
	if err := r.result(r.put(strings.Replace(before, "192.168.1.1", "192.168.1.2", 1))); err == nil {
		t.Fatal("the service was applied")
	}
	var keys []string
	for e := range r.health.Endpoints {
		keys = append(keys, e.Key())
	}
	if want := []string{"192.168.1.1_tcp_80"}; !slices.Equal(keys, want) {
		t.Errorf("%q are probed, want %q", keys, want)
	}
}

// TestEndpointObject checks that an endpoint object replaces the probe of services by its name, and
// that its deletion restores it.
func TestEndpointObject(t *testing.T) {
	t.Parallel()
	r := newRig(t, newFakeKernel(), monitored, monitored2)
	r.prober.calls()
	objects := NewEndpointProbes(r.state, r.health, r.services.Observers)
	runUntilEnd(t, objects.Run)
	put := func(e lb.EndpointProbe) {
		t.Helper()
		r.wait(r.commit(func(tx *store.Tx) error { return r.state.Endpoints.Put(tx, e) }))
	}
	r.setHealth("192.168.1.1_tcp_80", health.Down)
	r.eventually("the endpoint is avoided", func() bool { return len(r.events) >= 2 })
	r.drainEvents()
	e := lb.EndpointProbe{Name: "192.168.1.1_tcp_80", Addr: netip.MustParseAddr("192.168.1.1"), Probe: lb.Probe{Type: lb.ProbePing}}
	put(e)
	r.wantCalls("change 192.168.1.1_tcp_80: ping 192.168.1.1:0 every 2s")
	e.Probe.Interval = time.Second
	put(e)
	r.wantCalls("change 192.168.1.1_tcp_80: ping 192.168.1.1:0 every 1s")
	r.setHealth("192.168.1.1_tcp_80", health.Up)
	r.eventually("the endpoint is used again", func() bool { return slices.Contains(r.events, "put 10.0.0.1:443/tcp") })
	if s := r.status(kinds.Endpoint().Name, "192.168.1.1_tcp_80"); s.Applied == 0 || s.Applied != s.Desired {
		t.Errorf("got %+v, want s.Applied != 0, s.Applied == s.Desired", s)
	}
	// An object without a service is probed too.
	put(lb.EndpointProbe{Addr: netip.MustParseAddr("192.168.9.9"), Probe: lb.Probe{Type: lb.ProbeTCP, Port: 22}})
	r.wantCalls("set 192.168.9.9_tcp_22: tcp 192.168.9.9:22 every 2s")
	if n := r.health.SetHostState(netip.MustParseAddr("192.168.9.9"), 22, lb.ProbeTCP, true); n != 1 {
		t.Errorf("%d targets are reported down", n)
	}
	if n := r.health.SetHostState(netip.MustParseAddr("192.168.9.9"), 22, lb.ProbeUDP, true); n != 0 {
		t.Errorf("%d targets of another protocol are reported down", n)
	}
	if !(agentReport{port: 80, probe: lb.ProbeTCP}).covers(80, lb.ProbeHTTP) || (agentReport{port: 80, probe: lb.ProbeHTTP}).covers(80, lb.ProbeTCP) {
		t.Error("a report about tcp must cover http, and a report about http must not cover tcp")
	}
	if n := r.health.SetHostState(netip.MustParseAddr("192.168.9.9"), 23, lb.ProbeAuto, true); n != 0 {
		t.Errorf("%d targets of another port are reported down", n)
	}
	r.wantCalls("override 192.168.9.9_tcp_22: down an agent reports it down")
	r.health.SetHostState(netip.MustParseAddr("192.168.9.9"), 0, lb.ProbeAuto, false)
	r.wantCalls("override 192.168.9.9_tcp_22: unknown ")
	r.wait(r.commit(func(tx *store.Tx) error {
		for e := range r.state.Endpoints.All(tx) {
			if err := tx.Delete(r.state.Endpoints.ID(e.Key())); err != nil {
				return err
			}
		}
		return nil
	}))
	r.wantCalls("change 192.168.1.1_tcp_80: tcp 192.168.1.1:80 every 2s", "remove 192.168.9.9_tcp_22")
	if _, ok := r.statuses.Get(status.ID{Kind: kinds.Endpoint().Name, Key: "192.168.9.9_tcp_22"}); ok {
		t.Error("a removed endpoint has a status")
	}
}

// TestObjectMovesServices checks that services whose target changes because an object was created
// or deleted follow the state of the new target at once.
func TestObjectMovesServices(t *testing.T) {
	t.Parallel()
	const (
		a     = "10.0.0.1:80/tcp endpoints=192.168.1.1:80 probetype=http probereq=/a"
		b     = "10.0.0.2:80/tcp endpoints=192.168.1.1:80 probetype=http probereq=/b"
		probe = "192.168.1.1_http_80"
	)
	r := newRig(t, newFakeKernel(), a)
	r.wait(r.put(b)) // later, so it has the second probe
	r.drainEvents()
	objects := NewEndpointProbes(r.state, r.health, r.services.Observers)
	runUntilEnd(t, objects.Run)
	r.setHealth(probe, health.Down)
	r.wantApplied("put 10.0.0.1:80/tcp without 192.168.1.1")
	e := lb.EndpointProbe{Name: probe, Addr: netip.MustParseAddr("192.168.1.1"), Probe: lb.Probe{Type: lb.ProbePing}}
	r.wait(r.commit(func(tx *store.Tx) error { return r.state.Endpoints.Put(tx, e) }))
	r.wantApplied("put 10.0.0.2:80/tcp without 192.168.1.1")
	r.wait(r.commit(func(tx *store.Tx) error { return tx.Delete(r.state.Endpoints.ID(e.Key())) }))
	r.wantApplied("put 10.0.0.2:80/tcp")
}

// TestAdoptedServicesWait checks that services in the data path from an earlier process are not
// written until their endpoints have been probed again.
func TestAdoptedServicesWait(t *testing.T) {
	t.Parallel()
	w := newFakeKernel()
	w.services[compile.Key(key(t, "10.0.0.1:443/tcp"))] = true
	r := newStoppedRig(t, w)
	c := r.put(monitored2)
	r.start()
	const probe = "192.168.1.1_tcp_80"
	r.eventually("the endpoint is probed", func() bool { _, ok := r.prober.Status(probe); return ok })
	if events := r.drainEvents(); len(events) > 0 {
		t.Errorf("%q before the first probe result", events)
	}
	r.setHealth(probe, health.Down)
	r.wait(c)
	if events := r.drainEvents(); !slices.Equal(events[:1], []string{"put 10.0.0.1:443/tcp without 192.168.1.1"}) {
		t.Errorf(`got %q, want "put 10.0.0.1:443/tcp without 192.168.1.1" first`, events)
	}
	// Later, and without an earlier data path, a service does not wait.
	start := time.Now()
	r.wait(r.put(strings.Replace(monitored2, "192.168.1.1", "192.168.1.7", 1), "10.0.0.9:80/tcp endpoints=192.168.1.8:80 monitor=true"))
	if d := time.Since(start); d > firstProbes/2 {
		t.Errorf("a change took %s", d)
	}
}

// TestAdoptedWaitIsBounded checks that an endpoint whose probe does not end delays a start by
// firstProbes in total, however many services have it.
func TestAdoptedWaitIsBounded(t *testing.T) {
	t.Parallel()
	w := newFakeKernel()
	for _, k := range []string{"10.0.0.1:443/tcp", "10.0.0.1:80/tcp"} {
		w.services[compile.Key(key(t, k))] = true
	}
	start := time.Now()
	r := newRig(t, w, monitored, monitored2)
	if d := time.Since(start); d < firstProbes || d > 2*firstProbes {
		t.Errorf("the start took %s", d)
	}
	r.wantEvents("put 10.0.0.1:80/tcp", "put 10.0.0.1:443/tcp", "acquire [10.0.0.1]")
}

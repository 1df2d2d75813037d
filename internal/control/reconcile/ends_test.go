package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"loxilb/internal/control/health"
	"loxilb/internal/control/health/probe"
	"loxilb/internal/control/store"
	"loxilb/internal/kernel/datapath"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
)

// outage probes the endpoints of a service. The test chooses which endpoints fail.
type outage struct {
	probes  *probes
	service *lb.Service
	failing atomic.Pointer[map[string]bool] // by address
}

func newOutage(t *testing.T, text string) *outage {
	t.Helper()
	o := &outage{service: service(t, text)}
	o.fail()
	m := health.New(health.Config{Log: slog.New(slog.DiscardHandler), Prober: o.prober})
	runUntilEnd(t, m.Run)
	o.probes = newProbes(m)
	o.probes.add(o.service)
	o.probes.applyRequests()
	return o
}

func (o *outage) fail(addresses ...string) {
	failing := map[string]bool{}
	for _, a := range addresses {
		failing[a] = true
	}
	o.failing.Store(&failing)
}

func (o *outage) prober(spec probe.Spec) probe.Prober { return outageProbe{o, spec} }

type outageProbe struct {
	*outage
	probe.Spec
}

// Probe blocks until its context ends if the endpoint fails.
func (p outageProbe) Probe(ctx context.Context) (probe.Answer, error) {
	if !(*p.failing.Load())[p.To.Addr().String()] {
		return probe.Answer{What: "good"}, nil
	}
	<-ctx.Done()
	return probe.Answer{}, errors.New("no answer")
}

// ended watches the endpoints for d. It returns by address when connections of an endpoint first
// ended.
func (o *outage) ended(d time.Duration) map[string]time.Duration {
	ended := map[string]time.Duration{}
	for start := time.Now(); time.Since(start) < d; time.Sleep(10 * time.Millisecond) {
		f := endDecision{probes: o.probes, service: o.service}
		up := o.probes.up(o.service)
		serves := false
		for _, e := range o.service.Endpoints {
			serves = serves || up(e)
		}
		for _, e := range o.service.Endpoints {
			if _, isEnded := ended[e.Addr.String()]; isEnded || !serves || up(e) {
				continue
			}
			if ends, _ := f.deadline(e); ends.Rate > 0 {
				ended[e.Addr.String()] = time.Since(start)
			}
		}
	}
	return ended
}

// TestOwnLink checks that no connection ends while no endpoint answers, nor when endpoints recover
// one after the other: this machine's own link may have failed. An endpoint that fails while
// another one answers soon loses its connections.
func TestOwnLink(t *testing.T) {
	t.Parallel()
	for _, service := range []string{
		"10.0.0.1:80/tcp endpoints=192.168.1.1:80,192.168.1.2:80,192.168.1.3:80 probetype=http on-fail=reset probe-interval=100ms",
		"10.0.0.1:80/udp endpoints=192.168.1.1:80,192.168.1.2:80,192.168.1.3:80 probetype=http probe-interval=100ms",
		"10.0.0.1:80/tcp endpoints=192.168.1.1:80,192.168.1.2:80@1 probetype=http on-fail=reset probe-interval=100ms probe-wait=50ms",
	} {
		synctest.Test(t, func(t *testing.T) {
			o := newOutage(t, service)
			time.Sleep(2 * time.Second)
			for _, blip := range []time.Duration{150, 250, 300, 350, 420, 1000, 5000} {
				o.fail("192.168.1.1", "192.168.1.2", "192.168.1.3")
				during := o.ended(blip * time.Millisecond)
				o.fail()
				if after := o.ended(2 * time.Second); len(during)+len(after) > 0 {
					t.Errorf("%s: %v and %v end in a blip of %d ms", service, during, after, blip)
				}
			}
			o.fail("192.168.1.1")
			if ended := o.ended(2 * time.Second); len(ended) != 1 || ended["192.168.1.1"] == 0 || ended["192.168.1.1"] > 600*time.Millisecond {
				t.Errorf("%s: %v end when one is dead", service, ended)
			}
		})
	}
}

// TestFirstFailure checks that after a restart new connections avoid an endpoint after one failure,
// and open ones stay.
func TestFirstFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOutage(t, "10.0.0.1:80/tcp endpoints=192.168.1.1:80,192.168.1.2:80 probetype=http on-fail=reset probe-interval=1s probe-wait=500ms")
		o.fail("192.168.1.1")
		time.Sleep(600 * time.Millisecond)
		if o.probes.up(o.service)(o.service.Endpoints[0]) {
			t.Error("the endpoint is up after its first probe has failed")
		}
		o.fail()
		if ended := o.ended(time.Minute); len(ended) > 0 {
			t.Errorf("%v end", ended)
		}
	})
}

// TestEndsByAgent checks that an agent's report ends connections although the endpoint answers.
func TestEndsByAgent(t *testing.T) {
	t.Parallel()
	s := service(t, "10.0.0.1:80/tcp endpoints=192.168.1.1:80,192.168.1.2:80 monitor=true on-fail=reset")
	p, fake := newFakeProbes(t, s)
	fake.states[p.keyOf(s, s.Endpoints[0])] = health.Status{State: health.Down, ProbeState: health.Down, Overridden: true, Successes: 9}
	f := endDecision{probes: p, service: s}
	if ends, failed := f.deadline(s.Endpoints[0]); ends.Rate == 0 || !failed {
		t.Errorf("got %+v, %t, want ends.Rate != 0, failed", ends, failed)
	}
	if f.wait != 0 {
		t.Errorf("the decision waits for %s, want no wait", f.wait)
	}
}

// TestDrainByAgent checks that an agent's report about a port that the probe does not use ends
// connections relative to the first report, not to the time when the probe found the endpoint up.
func TestDrainByAgent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := service(t, "10.0.0.1:80/tcp endpoints=192.168.1.1:6100,192.168.1.2:6100 monitor=true probetype=ping on-fail=drain drain-time=60s")
		p, fake := newFakeProbes(t, s)
		e := s.Endpoints[0]
		status := health.Status{State: health.Up, ProbeState: health.Up, ProbeSince: time.Now(), Successes: 9}
		fake.states[p.keyOf(s, e)] = status
		time.Sleep(time.Hour)
		h := &Health{probes: p}
		reported := time.Now()
		for range 3 {
			h.SetHostState(e.Addr, e.Port, lb.ProbeAuto, true)
			f := endDecision{probes: p, service: s}
			if ends, failed := f.deadline(e); !failed || !ends.At.Equal(reported.Add(time.Minute)) {
				t.Errorf("%+v, %t, with a report at %s", ends, failed, reported)
			}
			time.Sleep(time.Second)
		}
		h.SetHostState(e.Addr, e.Port, lb.ProbeTCP, false)
		h.SetHostState(e.Addr, e.Port, lb.ProbeAuto, true)
		status.State, status.ProbeState, status.ProbeSince = health.Down, health.Down, reported.Add(5*time.Second) // later than the report
		fake.states[p.keyOf(s, e)] = status
		f := endDecision{probes: p, service: s}
		if ends, _ := f.deadline(e); !ends.At.Equal(reported.Add(63 * time.Second)) {
			t.Errorf("%+v after another report at %s", ends, reported.Add(3*time.Second))
		}
	})
}

// TestNoOtherAnswers checks that failures suffice if no other serving endpoint can answer probes.
func TestNoOtherAnswers(t *testing.T) {
	t.Parallel()
	s := service(t, "10.0.0.1:80/udp endpoints=192.168.1.1:80,192.168.1.2:80 monitor=true")
	failed := health.Status{State: health.Down, ProbeState: health.Down, Failures: 3, Fall: 3, Interval: time.Second}
	for name, step := range map[string]struct {
		other     health.Status
		known     bool
		confirmed bool
	}{
		"is not probed":                   {confirmed: true},
		"has undecided results only":      {health.Status{Undecided: true, Interval: time.Second}, true, true},
		"was up before undecided results": {health.Status{State: health.Up, ProbeState: health.Up, Undecided: true, Successes: 1, Interval: time.Second}, true, true},
		"has no result yet":               {health.Status{Interval: time.Second}, true, false},
		"has begun to fail":               {health.Status{State: health.Up, ProbeState: health.Up, Failures: 1, Interval: time.Second}, true, false},
	} {
		p, fake := newFakeProbes(t, s)
		fake.states[p.keyOf(s, s.Endpoints[0])] = failed
		if delete(fake.states, p.keyOf(s, s.Endpoints[1])); step.known {
			fake.states[p.keyOf(s, s.Endpoints[1])] = step.other
		}
		f := endDecision{probes: p, service: s}
		if ends, _ := f.deadline(s.Endpoints[0]); (ends.Rate > 0) != step.confirmed || (f.wait == 0) != step.confirmed {
			t.Errorf("the other endpoint %s: %+v, reapplied after %s", name, ends, f.wait)
		}
	}
}

// TestReapplyTimers checks that a service is applied again once, at the time scheduled last, and
// not at all if that is cancelled.
func TestReapplyTimers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var marked atomic.Int32
		u := reapplyTimers{timers: map[lb.Key]*time.Timer{}, mark: func(...lb.Key) { marked.Add(1) }}
		u.schedule(lb.Key{Port: 1}, time.Second)
		u.schedule(lb.Key{Port: 1}, 2*time.Second)
		u.schedule(lb.Key{Port: 2}, time.Second)
		u.schedule(lb.Key{Port: 2}, 0)
		if time.Sleep(time.Minute); marked.Load() != 1 {
			t.Errorf("applied %d times", marked.Load())
		}
	})
}

// TestUnconfirmedFailure checks that a service waits for the next probe while an endpoint's failure
// is not confirmed and another one serves.
func TestUnconfirmedFailure(t *testing.T) {
	t.Parallel()
	s := service(t, "10.0.0.1:80/tcp endpoints=192.168.1.1:80,192.168.1.2:80 monitor=true on-fail=drain")
	p, fake := newFakeProbes(t, s)
	fake.states[p.keyOf(s, s.Endpoints[0])] = health.Status{State: health.Down, ProbeState: health.Down, Failures: 1, Fall: 3, Interval: time.Second}
	f := endDecision{probes: p, service: s}
	if ends, failed := f.deadline(s.Endpoints[0]); ends.Rate != 0 || !failed || f.wait != time.Second {
		t.Errorf("%+v, %t, reapplied after %s", ends, failed, f.wait)
	}
}

// TestQUICDrainDeadline checks that a drained endpoint keeps its server ID until the deadline of
// the drain, and has it again after the drain. The server IDs of other endpoints stay.
func TestQUICDrainDeadline(t *testing.T) {
	t.Parallel()
	w := newFakeKernel()
	var ids []bool // which endpoints have a server ID
	configs := 0
	w.onWrite = func(c datapath.Change) {
		ids = nil
		for _, e := range c.Table.Endpoints {
			ids = append(ids, e.ServerID != bpf.ServerID{})
		}
		configs = len(c.Table.QUIC)
	}
	r := newRig(t, w, "10.0.0.1:443/udp select=quic endpoints=10.2.0.1:443:1#0a,10.2.0.2:443:1#0b")
	has := func(first bool) func() bool {
		return func() bool { return slices.Equal(ids, []bool{first, true}) && configs == 1 }
	}
	r.eventually("both have server IDs", has(true))
	drain := lb.Drain{Addr: netip.MustParseAddr("10.2.0.1"), Rate: 1, Deadline: time.Now().Add(time.Hour)}
	put := func() { r.wait(r.commit(func(tx *store.Tx) error { return r.state.Drains.Put(tx, drain) })) }
	put()
	r.eventually("it has its server ID before the deadline", has(true))
	drain.Deadline = time.Now().Add(100 * time.Millisecond)
	put()
	r.eventually("it has none after the deadline", has(false))
	r.wait(r.commit(func(tx *store.Tx) error { return tx.Delete(r.state.Drains.ID(drain.Key())) }))
	r.eventually("it has its server ID again", has(true))
}

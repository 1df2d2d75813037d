package reconcile

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"loxilb/internal/control/health"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

var ejected = netip.MustParseAddrPort("192.168.1.1:80")

// TestEjected checks that all services that consider handshakes avoid an ejected endpoint, and that
// its target of type none is removed with the last of these services.
func TestEjected(t *testing.T) {
	t.Parallel()
	const (
		plain  = "10.0.0.1:80/tcp endpoints=192.168.1.1:80,192.168.1.2:80"
		probed = "10.0.0.1:443/tcp endpoints=192.168.1.1:80,192.168.1.2:80 probetype=tcp"
		off    = "10.0.0.2:80/tcp endpoints=192.168.1.1:80,192.168.1.2:80 probetype=tcp outlier=off"
	)
	r := newRig(t, newFakeKernel(), plain, probed, off)
	r.prober.calls()
	r.drainEvents()
	r.health.markServices(r.health.probes.eject(ejected, ejection{evidence: "passive: seen"}))
	r.wantApplied("put 10.0.0.1:80/tcp without 192.168.1.1", "put 10.0.0.1:443/tcp without 192.168.1.1")
	r.wantCalls("eject 192.168.1.1_none_80: passive: seen", "eject 192.168.1.1_none_80: passive: seen",
		"set 192.168.1.1_none_80: none 192.168.1.1:80 every 2s")
	if e, shown := r.health.probes.health("192.168.1.1_none_80"); !shown || len(e.Services) != 2 {
		t.Errorf("the ejected endpoint is shown: %t, with two services: %+v", shown, e)
	}
	s := service(t, plain)
	for e, want := range map[lb.Endpoint]health.State{s.Endpoints[0]: health.Down, s.Endpoints[1]: health.Unknown} {
		if got := r.health.EndpointVerdict(s, e); got.Down() != (want == health.Down) || got.Probe == report.HealthUp {
			t.Errorf("%s is %+v", e, got)
		}
		if h, ok := r.health.EndpointHealth(s, e); ok != (want == health.Down) || h.State != report.HealthState(want) || (h.Evidence != "") != ok {
			t.Errorf("the health of %s is %+v, known: %t, want %v", e, h, ok, want)
		}
	}
	if got := r.health.EndpointVerdict(service(t, off), s.Endpoints[0]); got.Down() {
		t.Error("a service that ignores handshakes considers the ejection")
	}
	// A service that is applied for another reason still considers it, and so does a new
	// service.
	r.wait(r.put(plain+" mss=1400", "10.0.0.9:80/tcp endpoints=192.168.1.1:80,192.168.1.2:80"))
	r.wantEvents("put 10.0.0.1:80/tcp without 192.168.1.1", "put 10.0.0.9:80/tcp without 192.168.1.1", "acquire [10.0.0.9]")
	r.wait(r.delete("10.0.0.9:80/tcp"))
	r.drainEvents()
	r.health.markServices(r.health.probes.readmit(ejected))
	r.wantApplied("put 10.0.0.1:80/tcp", "put 10.0.0.1:443/tcp")
	r.prober.calls()
	r.wait(r.delete("10.0.0.1:80/tcp"))
	r.wantCalls()
	r.wait(r.delete("10.0.0.1:443/tcp"))
	r.wantCalls("remove 192.168.1.1_none_80")
	if n := len(r.health.probes.ejections.shown); n > 0 {
		t.Errorf("%d endpoints without a service have a target", n)
	}
}

// TestPanic checks that ejections have no effect while fewer than half of the endpoints would be
// up. Probe results still apply.
func TestPanic(t *testing.T) {
	t.Parallel()
	r := newRig(t, newFakeKernel(), "10.0.0.1:80/tcp endpoints=192.168.1.1:80,192.168.1.2:80,192.168.1.3:80,192.168.1.4:80:0 probetype=tcp")
	r.drainEvents()
	r.health.markServices(r.health.probes.eject(ejected, ejection{evidence: "passive: seen"}))
	r.wantApplied("put 10.0.0.1:80/tcp without 192.168.1.1")
	r.setHealth("192.168.1.2_tcp_80", health.Down)
	r.wantApplied("put 10.0.0.1:80/tcp without 192.168.1.2")
	r.setHealth("192.168.1.2_tcp_80", health.Up)
	r.wantApplied("put 10.0.0.1:80/tcp without 192.168.1.1")
}

// TestPanicWithBackups checks that a level whose endpoints all fail gets no connections while
// backups are up, whatever its share of all endpoints.
func TestPanicWithBackups(t *testing.T) {
	t.Parallel()
	const list = "192.168.1.1:80,192.168.1.2:80,192.168.1.3:80,192.168.1.4:80@1,192.168.1.5:80@2"
	s := service(t, "10.0.0.1:80/tcp endpoints="+list+" probetype=tcp")
	for _, c := range []struct {
		down, out []int
		up        string
	}{
		{[]int{0}, []int{1}, "..345"},
		{nil, []int{0, 1, 2}, "...45"},
		{[]int{0, 1}, []int{2}, "...45"},
		{[]int{0}, []int{1, 2, 3}, "....5"},
		{[]int{0, 1}, []int{3, 4}, "..345"},
		{[]int{0, 4}, []int{1, 2, 3}, ".234."},
		{[]int{1, 2}, []int{0, 3}, "....5"},
	} {
		p, fake := newFakeProbes(t, s)
		for _, i := range c.down {
			fake.states[p.keyOf(s, s.Endpoints[i])] = health.Status{State: health.Down, ProbeState: health.Down}
		}
		for _, i := range c.out {
			p.eject(s.Endpoints[i].AddrPort(), ejection{evidence: "passive: seen"})
		}
		if got := usable(p, s); got != c.up {
			t.Errorf("with %v down and %v ejected, %s are up, want %s", c.down, c.out, got, c.up)
		}
	}
}

// TestReportAfterEjection checks that an agent's report about an unprobed endpoint that was ejected
// applies, as for a probed one.
func TestReportAfterEjection(t *testing.T) {
	t.Parallel()
	s := service(t, "10.0.0.1:80/tcp endpoints=192.168.1.1:80,192.168.1.2:80")
	p, fake := newFakeProbes(t, s)
	h := &Health{probes: p}
	if n := h.SetHostState(ejected.Addr(), 80, lb.ProbeTCP, true); n > 0 || p.up(s) != nil {
		t.Errorf("%d targets where nothing is probed", n)
	}
	p.eject(ejected, ejection{evidence: "passive: seen"})
	p.readmit(ejected)
	if n := h.SetHostState(ejected.Addr(), 0, lb.ProbeAuto, true); n != 1 {
		t.Fatalf("%d targets", n)
	}
	fake.states["192.168.1.1_none_80"] = health.Status{State: health.Down, ProbeState: health.Down, Overridden: true} // as set by Override
	if p.up(s)(s.Endpoints[0]) {
		t.Error("the endpoint takes connections though an agent reports it down")
	}
	if v := h.EndpointVerdict(s, s.Endpoints[0]); v.Probe != report.HealthDown {
		t.Errorf("the endpoint's verdict is %+v, want its probe down", v)
	}
}

// TestSharedProbe checks that endpoints that share a probe are ejected, and shown, separately, and
// that the probe's state is its own result.
func TestSharedProbe(t *testing.T) {
	t.Parallel()
	r := newRig(t, newFakeKernel(), "10.0.0.1:80/tcp endpoints=192.168.1.1:80,192.168.1.1:81,192.168.1.1:82,192.168.1.1:83 probetype=ping")
	r.drainEvents()
	r.prober.calls()
	other := netip.AddrPortFrom(ejected.Addr(), 81)
	r.health.probes.eject(ejected, ejection{evidence: "one"})
	r.health.probes.eject(other, ejection{evidence: "two"})
	r.health.probes.readmit(other)
	s := service(t, "10.0.0.1:80/tcp endpoints=192.168.1.1:80,192.168.1.1:81 probetype=ping")
	if one, two := r.health.probes.effectiveHealth(s, s.Endpoints[0]), r.health.probes.effectiveHealth(s, s.Endpoints[1]); !one.down() || two.down() {
		t.Errorf("the ejected endpoint is down: %t, the other: %t", one.down(), two.down())
	}
	r.health.probes.readmit(ejected)
	if got := r.prober.calls(); !slices.Equal(got, []string{
		"eject 192.168.1.1_none_80: ", "eject 192.168.1.1_none_80: one", "eject 192.168.1.1_none_80: one",
		"eject 192.168.1.1_none_81: ", "eject 192.168.1.1_none_81: two", "eject 192.168.1.1_none_81: two",
		"set 192.168.1.1_none_80: none 192.168.1.1:80 every 2s", "set 192.168.1.1_none_81: none 192.168.1.1:81 every 2s",
	}) {
		t.Errorf("the calls are %q", got)
	}
}

// TestNoRoute checks that an endpoint without a route is down, with this evidence.
func TestNoRoute(t *testing.T) {
	t.Parallel()
	const text = "10.0.0.1:80/tcp endpoints=192.168.1.1:80,192.168.1.2:80"
	r := newRig(t, newFakeKernel(), text)
	s := service(t, text)
	r.health.SetRouteCheck(func(a netip.Addr) error {
		if a == s.Endpoints[0].Addr {
			return errors.New("there is no route")
		}
		return nil
	})
	h, known := r.health.EndpointHealth(s, s.Endpoints[0])
	if v := r.health.EndpointVerdict(s, s.Endpoints[0]); !known || h.State != report.HealthDown || h.Evidence != "there is no route" || !v.NoRoute || !v.Down() {
		t.Errorf("without a route: %+v, %+v", h, v)
	}
	_, known = r.health.EndpointHealth(s, s.Endpoints[1])
	if v := r.health.EndpointVerdict(s, s.Endpoints[1]); known || v.Down() {
		t.Errorf("with a route: %+v", v)
	}
}

// TestKept checks that a failing endpoint that stays in rotation is reported as down, and still
// gets connections.
func TestKept(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"10.0.0.1:80/tcp endpoints=192.168.1.1:80,192.168.1.2:80", "10.0.0.1:80/tcp endpoints=192.168.1.1:80",
		"10.0.0.1:80/tcp endpoints=192.168.1.1:80,192.168.1.2:80 probetype=tcp",
	} {
		r := newRig(t, newFakeKernel(), text)
		r.drainEvents()
		r.health.markServices(r.health.probes.eject(ejected, ejection{evidence: "passive: seen", kept: true}))
		r.wantApplied("put 10.0.0.1:80/tcp")
		s := service(t, text)
		h, known := r.health.EndpointHealth(s, s.Endpoints[0])
		if v := r.health.EndpointVerdict(s, s.Endpoints[0]); !known || h.State != report.HealthDown || !v.Failing || v.Ejected {
			t.Errorf("%s: got %+v, %+v, want known, h.State == report.HealthDown, v.Failing, not v.Ejected",
				text, h, v)
		}
		r.health.markServices(r.health.probes.readmit(ejected))
		r.wantApplied("put 10.0.0.1:80/tcp")
		if v := r.health.EndpointVerdict(s, s.Endpoints[0]); v.Down() {
			t.Errorf("%s: the endpoint is %+v after it was readmitted", text, v)
		}
	}
}

// TestCertain checks that endpoints that certainly fail get no connections while another endpoint
// is up, and that all get connections when none is.
func TestCertain(t *testing.T) {
	t.Parallel()
	text := "10.0.0.1:80/tcp endpoints=192.168.1.1:80,192.168.1.2:80,192.168.1.3:80"
	r := newRig(t, newFakeKernel(), text)
	s := service(t, text)
	eligible := func() (n int) {
		up := r.health.probes.up(s)
		for _, e := range s.Endpoints {
			if up(e) {
				n++
			}
		}
		return n
	}
	for i, want := range []int{2, 1, 3} {
		r.health.probes.eject(s.Endpoints[i].AddrPort(), ejection{evidence: "passive: seen", certain: true})
		if n := eligible(); n != want {
			t.Errorf("%d endpoints get connections while %d are ejected, want %d", n, i+1, want)
		}
	}
}

// TestAsymmetricReplyStaysUp checks that an endpoint whose answers do not reach clients is reported
// as a problem, and stays up.
func TestAsymmetricReplyStaysUp(t *testing.T) {
	t.Parallel()
	text := "10.0.0.1:80/tcp endpoints=192.168.1.1:80"
	r := newRig(t, newFakeKernel(), text)
	r.drainEvents()
	r.health.recordReply(ejected, false)
	s := service(t, text)
	if v := r.health.EndpointVerdict(s, s.Endpoints[0]); v.Down() || !r.health.HasAsymmetricReply(ejected) {
		t.Errorf("%+v, asymmetric %t", v, r.health.HasAsymmetricReply(ejected))
	}
}

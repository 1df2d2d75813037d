package reconcile

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/control/health"
	"loxilb/internal/lb"
)

// usable returns the numbers of a service's endpoints that are up, with a dot for each other one.
func usable(p *probes, s *lb.Service) (list string) {
	up := p.up(s)
	for i, e := range s.Endpoints {
		if up(e) {
			list += strconv.Itoa(i + 1)
		} else {
			list += "."
		}
	}
	return list
}

// newFakeProbes returns the probes of services, and a fake prober.
func newFakeProbes(t *testing.T, services ...*lb.Service) (*probes, *fakeProber) {
	t.Helper()
	fake := newFakeProber()
	p := newProbes(fake)
	for _, s := range services {
		p.add(s)
	}
	p.applyRequests()
	fake.calls()
	return p, fake
}

func service(t *testing.T, text string) *lb.Service {
	t.Helper()
	s, err := lb.ParseService(text)
	if err != nil {
		t.Fatal(err)
	}
	return &s
}

// TestObjectDuringChange checks that probes and their states stay when objects are created or
// deleted between the removal and the addition of services.
func TestObjectDuringChange(t *testing.T) {
	t.Parallel()
	const name = "192.168.1.1_tcp_80"
	a := service(t, "10.0.0.1:80/tcp endpoints=192.168.1.1:80 monitor=true")
	b := service(t, "10.0.0.2:80/tcp endpoints=192.168.1.1:80 monitor=true")
	ping := func(addr string) *lb.EndpointProbe {
		return &lb.EndpointProbe{Addr: netip.MustParseAddr(addr), Probe: lb.Probe{Type: lb.ProbePing}}
	}
	for _, tc := range []struct {
		name          string
		before, after *lb.EndpointProbe
	}{
		{"other", nil, ping("192.168.9.9")},
		{"other", ping("192.168.9.9"), nil},
		{name, nil, ping("192.168.1.1")},
		{name, ping("192.168.1.1"), nil},
	} {
		p, fake := newFakeProbes(t, a)
		p.setObject(tc.name, tc.before)
		fake.states[name] = health.Status{State: health.Down, ProbeState: health.Down}
		p.remove(a)
		p.setObject(tc.name, tc.after)
		p.add(b)
		p.applyRequests()
		if p.up(b)(b.Endpoints[0]) {
			t.Errorf("%s, %v to %v: the endpoint is no longer known to be down: %q", tc.name, tc.before, tc.after, fake.calls())
		}
	}
}

// TestAgentReportsInOrder checks that the prober gets an agent's report before the next one is
// recorded, so the displayed report is the one in effect.
func TestAgentReportsInOrder(t *testing.T) {
	t.Parallel()
	s := service(t, "10.0.0.1:80/tcp endpoints=192.168.1.1:80 monitor=true")
	p, fake := newFakeProbes(t, s)
	h := &Health{probes: p}
	notified := 0
	fake.onOverride = func() {
		notified++
		if p.mu.TryLock() {
			p.mu.Unlock()
			t.Error("another report may come in between")
		}
	}
	h.SetHostState(s.Endpoints[0].Addr, 80, lb.ProbeTCP, true)
	h.SetHostState(s.Endpoints[0].Addr, 0, lb.ProbeAuto, false)
	if notified != 2 {
		t.Errorf("the prober was notified %d times", notified)
	}
}

// TestAgentReportLasts checks that an agent's report about a host also applies to later probes
// there, until there are none.
func TestAgentReportLasts(t *testing.T) {
	t.Parallel()
	const down, up = "down an agent reports it down", "unknown "
	host := netip.MustParseAddr("192.168.1.1")
	tcp := service(t, "10.0.0.1:80/tcp endpoints=192.168.1.1:80 monitor=true")
	http := service(t, "10.0.0.1:80/tcp endpoints=192.168.1.1:80 probetype=http")
	other := service(t, "10.0.0.2:80/tcp endpoints=192.168.1.1:8080,192.168.1.2:8080 monitor=true")
	p, fake := newFakeProbes(t, tcp)
	h := &Health{probes: p}
	change := func(old, added *lb.Service) {
		if old != nil {
			p.remove(old)
		}
		if added != nil {
			p.add(added)
		}
		p.applyRequests()
	}
	want := func(what string, want ...string) {
		t.Helper()
		var got []string
		for _, line := range fake.calls() {
			if call, ok := strings.CutPrefix(line, "override 192.168.1."); ok {
				got = append(got, call)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: the prober was notified: -want +got\n%s", what, diff)
		}
	}
	h.SetHostState(host, 0, lb.ProbeAuto, true)
	want("the host is red", "1_tcp_80: "+down)
	change(tcp, http)
	want("a service probes by http", "1_http_80: "+down)
	change(nil, other)
	want("another service is added", "1_tcp_8080: "+down)
	h.SetHostState(host, 8080, lb.ProbeAuto, false)
	want("a port is green", "1_tcp_8080: "+up)
	change(other, nil)
	change(nil, other)
	want("the other service is added again")
	p.setObject("192.168.1.2_tcp_8080", &lb.EndpointProbe{Addr: host, Probe: lb.Probe{Type: lb.ProbePing}})
	want("an object replaces a probe, and probes the host", "2_tcp_8080: "+down)
	p.setObject("192.168.1.2_tcp_8080", nil)
	want("the object is deleted", "2_tcp_8080: "+up)
	change(http, nil)
	change(other, nil)
	change(nil, tcp)
	want("the host was not probed meanwhile")
}

// TestAgentReportsAreBounded checks that the number of agents' reports is bounded, and that reports
// in use stay.
func TestAgentReportsAreBounded(t *testing.T) {
	t.Parallel()
	host := netip.MustParseAddr("192.168.1.1")
	targets := []*health.Target{{Addr: host, Port: 80, Probe: lb.Probe{Type: lb.ProbeTCP}}}
	ws := agentReports{}
	isDown := func() bool { _, down := ws.reportedDown(targets[0]); return down }
	ws.add(host, agentReport{port: 80, down: true}, targets)
	for port := range uint16(1000) {
		ws.add(host, agentReport{port: 1000 + port, down: true}, targets)
	}
	if n := len(ws[host]); n > maxIdleReports || !isDown() {
		t.Errorf("%d reports, and the one in use has red %t", n, isDown())
	}
	ws.add(host, agentReport{}, targets)
	if len(ws) > 0 {
		t.Errorf("%v is left after all reports are green", ws)
	}
}

// TestAgentReportByPort checks that an agent's report about a port applies to endpoints at that
// port of services whose probe uses no port, and not to others that share the probe.
func TestAgentReportByPort(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"none", "ping"} {
		s := service(t, "10.0.0.1:80/tcp endpoints=192.168.1.1:6100,192.168.1.1:6101 monitor=true probetype="+kind)
		u := service(t, "10.0.0.1:80/udp endpoints=192.168.1.1:6100 monitor=true probetype="+kind)
		p, _ := newFakeProbes(t, s, u)
		var applied []lb.Key
		h := &Health{probes: p, mark: func(keys ...lb.Key) { applied = append(applied, keys...) }}
		up := func() string {
			return fmt.Sprint(p.up(s)(s.Endpoints[0]), p.up(s)(s.Endpoints[1]), p.up(u)(u.Endpoints[0]))
		}
		for _, step := range []struct {
			port  uint16
			probe lb.ProbeType
			down  bool
			found int
			up    string
		}{
			{6100, lb.ProbeTCP, true, 1, "false true true"},
			{6100, lb.ProbeTCP, false, 1, "true true true"},
			{6100, lb.ProbeAuto, true, 2, "false true false"},
			{6100, lb.ProbeUDP, false, 1, "false true true"},
			{6100, lb.ProbeAuto, false, 2, "true true true"},
			{6102, lb.ProbeTCP, true, 0, "true true true"},
			{6101, lb.ProbeTCP, true, 1, "true false true"},
		} {
			applied = nil
			if found := h.SetHostState(s.Endpoints[0].Addr, step.port, step.probe, step.down); found != step.found || len(applied) != found {
				t.Errorf("%s, %+v: %d endpoints, and %v are applied again", kind, step, found, applied)
			}
			if got := up(); got != step.up {
				t.Errorf("%s, %+v: %s are up", kind, step, got)
			}
		}
		p.remove(s)
		p.applyRequests()
		if len(p.portless) != 1 {
			t.Errorf("%d services are left", len(p.portless))
		}
	}
}

// TestProbeHeader checks that probes begin with a PROXY protocol header at the port where endpoints
// expect it, and that the setting changes a running probe.
func TestProbeHeader(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"probetype=http": false, "probetype=http proxy-protocol=true": true,
		"probetype=http probeport=8080 proxy-protocol=true": true, "probetype=http probeport=81 proxy-protocol=true": false,
	} {
		s := service(t, "10.0.0.1:80/tcp endpoints=192.168.1.1:8080 "+text)
		if _, got := targetOf(s, s.Endpoints[0]); got.ProxyHeader != want {
			t.Errorf("%s: a probe with a header: %t, want %t", text, got.ProxyHeader, want)
		}
	}
	with, without := health.Target{ProxyHeader: true}, health.Target{}
	if sameTarget(&with, &without) {
		t.Error("a probe with a header counts as one without")
	}
}

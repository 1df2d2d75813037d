package reconcile

import (
	"net/netip"
	"testing"

	"loxilb/internal/health"
	"loxilb/internal/lb"
)

// asked are probes of services written as text, without loops.
func asked(t *testing.T, services ...*lb.Service) (*probes, *prober) {
	t.Helper()
	fake := &prober{targets: map[string]health.Target{}, states: map[string]health.Status{}}
	p := newProbes(fake)
	for _, s := range services {
		p.add(s)
	}
	p.settle()
	fake.took()
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

// TestObjectMeetsPass: objects that come and go while services are being changed take no probe away, nor what is known by it.
func TestObjectMeetsPass(t *testing.T) {
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
		p, fake := asked(t, a)
		p.setObject(tc.name, tc.before)
		fake.states[name] = health.Status{State: health.Down}
		p.remove(a)
		p.setObject(tc.name, tc.after)
		p.add(b)
		p.settle()
		if p.up(b)(b.Endpoints[0]) {
			t.Errorf("%s, %v to %v: the endpoint is not known to be down any more: %q", tc.name, tc.before, tc.after, fake.took())
		}
	}
}

// TestWordsInOrder: the prober is told of a word before the next one is noted, so that what is shown is what holds.
func TestWordsInOrder(t *testing.T) {
	t.Parallel()
	s := service(t, "10.0.0.1:80/tcp endpoints=192.168.1.1:80 monitor=true")
	p, fake := asked(t, s)
	h := &Health{probes: p}
	told := 0
	fake.overrides = func() {
		told++
		if p.mu.TryLock() {
			p.mu.Unlock()
			t.Error("another word may come in between")
		}
	}
	h.SetHostState(s.Endpoints[0].Addr, 80, lb.ProbeTCP, true)
	h.SetHostState(s.Endpoints[0].Addr, 0, lb.ProbeAuto, false)
	if told != 2 {
		t.Errorf("the prober was told %d times", told)
	}
}

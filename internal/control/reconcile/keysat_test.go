package reconcile

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/control/health"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// TestKeysAt checks that keys are found by their addresses after additions and removals.
func TestKeysAt(t *testing.T) {
	t.Parallel()
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	k := keysAt{}
	check := func(at netip.Addr, want ...string) {
		t.Helper()
		if got := slices.Sorted(k.of(at)); !slices.Equal(got, want) {
			t.Errorf("%v has %q, want %q", at, got, want)
		}
	}
	for _, key := range []string{"x", "y", "x", "z", "y"} {
		k.add(a, key)
	}
	k.add(b, "w")
	check(a, "x", "y", "z")
	k.remove(a, "w")
	k.remove(a, "x")
	check(a, "y", "z")
	k.remove(a, "z")
	k.remove(a, "y")
	k.remove(a, "y")
	check(a)
	check(b, "w")
	if len(k) != 1 {
		t.Errorf("%d addresses are kept, want 1", len(k))
	}
}

// TestEndpointsFound checks that endpoints are found by name and address, and listed in order,
// while services change.
func TestEndpointsFound(t *testing.T) {
	t.Parallel()
	web := service(t, "10.0.0.1:80/tcp endpoints=192.168.1.1:80,192.168.1.2:80 monitor=true")
	dns := service(t, "10.0.0.2:53/tcp endpoints=192.168.1.2:53 monitor=true")
	p, fake := newFakeProbes(t, web, dns)
	h := &Health{probes: p}
	p.setObject("mine", &lb.EndpointProbe{Name: "mine", Addr: netip.MustParseAddr("192.168.1.1"), Probe: lb.Probe{Type: lb.ProbePing}})
	var found []string
	add := func(e *report.EndpointHealth) bool {
		found = append(found, e.Key())
		return true
	}
	check := func(what string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, found); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
		found = nil
	}
	h.Endpoints(add)
	check("all", "192.168.1.1_tcp_80", "192.168.1.2_tcp_53", "192.168.1.2_tcp_80", "mine")
	h.EndpointsNamed([]string{"192.168.1.1", "192.168.1.2_tcp_53", "192.168.1.2_tcp_53", "nope", "10.9.9.9"}, add)
	check("named", "192.168.1.1_tcp_80", "192.168.1.2_tcp_53", "mine")
	h.EndpointsWhere(func(name string, at netip.Addr) bool {
		return name != "mine" && at == netip.MustParseAddr("192.168.1.1")
	}, add)
	check("chosen", "192.168.1.1_tcp_80")
	fake.states["mine"], fake.states["192.168.1.2_tcp_80"] = health.Status{State: health.Down}, health.Status{State: health.Up}
	if c := h.EndpointCount(); c.Up != 1 || c.Down != 1 || c.Unknown != 2 {
		t.Errorf("got %+v, want c.Up == 1, c.Down == 1, c.Unknown == 2", c)
	}
	p.setObject("mine", &lb.EndpointProbe{Name: "mine", Addr: netip.MustParseAddr("192.168.1.9"), Probe: lb.Probe{Type: lb.ProbePing}})
	p.remove(web)
	p.applyRequests()
	h.EndpointsNamed([]string{"192.168.1.1", "192.168.1.9:80"}, add)
	check("moved", "mine")
	h.Endpoints(add)
	check("after a service was removed", "192.168.1.2_tcp_53", "mine")
}

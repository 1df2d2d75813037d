package reconcile

import (
	"net/netip"
	"slices"
	"testing"

	"loxilb/internal/health"
	"loxilb/internal/lb"
)

var ejected = netip.MustParseAddrPort("192.168.1.1:80")

// TestEjected: an endpoint that is out is avoided by all services that heed handshakes, shown by their probes or by a target of its own, and
// that goes with the last service that has it.
func TestEjected(t *testing.T) {
	t.Parallel()
	const (
		plain  = "10.0.0.1:80/tcp endpoints=192.168.1.1:80,192.168.1.2:80"
		probed = "10.0.0.1:443/tcp endpoints=192.168.1.1:80,192.168.1.2:80 probetype=tcp"
		off    = "10.0.0.2:80/tcp endpoints=192.168.1.1:80,192.168.1.2:80 probetype=tcp outlier=off"
	)
	r := newRig(t, newWorld(), plain, probed, off)
	r.prober.took()
	r.took()
	r.health.again(r.health.probes.eject(ejected, "passive: seen"))
	r.applied("put 10.0.0.1:80/tcp without 192.168.1.1", "put 10.0.0.1:443/tcp without 192.168.1.1")
	r.wantAsked("eject 192.168.1.1_none_80: passive: seen", "eject 192.168.1.1_none_80: passive: seen", "eject 192.168.1.1_tcp_80: passive: seen",
		"set 192.168.1.1_none_80: none 192.168.1.1:80 every 2s")
	s := service(t, plain)
	for e, want := range map[lb.Endpoint]health.State{s.Endpoints[0]: health.Down, s.Endpoints[1]: health.Unknown} {
		if got, ok := r.health.EndpointState(s, e); ok != (want == health.Down) || got != lb.HealthState(want) {
			t.Errorf("%s is %s, %t", e, got, ok)
		}
	}
	if got, _ := r.health.EndpointState(service(t, off), s.Endpoints[0]); got == lb.HealthDown {
		t.Error("a service that is not to heed it does")
	}
	// What is applied for another reason goes on to heed it, and a service that comes does.
	r.wait(r.put(plain+" mss=1400", "10.0.0.9:80/tcp endpoints=192.168.1.1:80,192.168.1.2:80"))
	r.wantEvents("put 10.0.0.1:80/tcp without 192.168.1.1", "put 10.0.0.9:80/tcp without 192.168.1.1", "own [10.0.0.9]")
	r.wait(r.delete("10.0.0.9:80/tcp"))
	r.took()
	r.health.again(r.health.probes.readmit(ejected))
	r.applied("put 10.0.0.1:80/tcp", "put 10.0.0.1:443/tcp")
	r.prober.took()
	r.wait(r.delete("10.0.0.1:80/tcp"))
	r.wantAsked("remove 192.168.1.1_none_80")
	if n := len(r.health.probes.ejections.shown); n > 0 {
		t.Errorf("%d endpoints are shown that no service has", n)
	}
}

// TestPanic: while fewer than half of the endpoints would be left, none is out for handshakes; what probes say holds.
func TestPanic(t *testing.T) {
	t.Parallel()
	r := newRig(t, newWorld(), "10.0.0.1:80/tcp endpoints=192.168.1.1:80,192.168.1.2:80,192.168.1.3:80,192.168.1.4:80:0 probetype=tcp")
	r.took()
	r.health.again(r.health.probes.eject(ejected, "passive: seen"))
	r.applied("put 10.0.0.1:80/tcp without 192.168.1.1")
	r.becomes("192.168.1.2_tcp_80", health.Down)
	r.applied("put 10.0.0.1:80/tcp without 192.168.1.2")
	r.becomes("192.168.1.2_tcp_80", health.Up)
	r.applied("put 10.0.0.1:80/tcp without 192.168.1.1")
}

// TestSharedProbe: endpoints that one probe stands for are out each by itself.
func TestSharedProbe(t *testing.T) {
	t.Parallel()
	r := newRig(t, newWorld(), "10.0.0.1:80/tcp endpoints=192.168.1.1:80,192.168.1.1:81,192.168.1.1:82,192.168.1.1:83 probetype=ping")
	r.took()
	r.prober.took()
	other := netip.AddrPortFrom(ejected.Addr(), 81)
	r.health.probes.eject(ejected, "one")
	r.health.probes.eject(other, "two")
	r.health.probes.readmit(other)
	if got := r.health.probes.outOf(service(t, "10.0.0.1:80/tcp endpoints=192.168.1.1:80,192.168.1.1:81 probetype=ping")); len(got) != 1 || !got[ejected] {
		t.Errorf("%v are out", got)
	}
	r.health.probes.readmit(ejected)
	if got := r.prober.took(); !slices.Equal(got, []string{
		"eject 192.168.1.1_ping_0: ", "eject 192.168.1.1_ping_0: one", "eject 192.168.1.1_ping_0: one", "eject 192.168.1.1_ping_0: two",
	}) {
		t.Errorf("%q", got)
	}
}

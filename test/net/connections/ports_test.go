package connections_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
)

// TestHeldPorts holds 70,000 connections to one endpoint. With one source address in mode onearm,
// 64,000 get a source port and the others are refused immediately. With two addresses, all get one.
// Each connection carries a byte in both directions while all others are held. A process can have
// 20,000 open files here, so both ends are several processes.
func TestHeldPorts(t *testing.T) {
	rig.Long(t)
	const processes, each, limit = 5, 14_000, 64_000
	r := rig.New(t, rig.Options{Before: func(t testing.TB, s *netnstest.Standard) {
		if err := s.Client.Sysctl("net/ipv4/ip_local_port_range", "10000 65000"); err != nil {
			t.Fatal(err)
		}
	}})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	start := func(h *netnstest.Host, args ...string) *netnstest.Process {
		p, err := h.Start(netnstest.Command{Args: append([]string{self, holdArg}, args...)})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, c := range []struct {
		vip, endpoint, flags string
		host                 *netnstest.Host
		held                 int
	}{
		{"20.20.20.1", "31.31.31.1", "--mode=onearm --snat=20.20.20.100", r.Endpoints[0], limit},
		{"20.20.20.2", "32.32.32.1", "--mode=fullnat --snat=20.20.20.101,20.20.20.102", r.Endpoints[1], processes * each},
	} {
		var servers, clients []*netnstest.Process
		for range processes {
			servers = append(servers, start(c.host, "serve", ":5001"))
		}
		for _, p := range servers {
			waitFor(t, p, "listening", rig.Patience)
		}
		// Each client process uses another port of the service, so each has enough client ports.
		r.Loxicmd("create lb %s --tcp=80-%d:5001 --endpoints=%s:1 %s", c.vip, 80+processes-1, c.endpoint, c.flags)
		began, before := time.Now(), r.Metric("drops_total", "reason=snat-ports-exhausted")
		for i := range processes {
			clients = append(clients, start(r.Client, "try", rig.Join(c.vip, 80+i), strconv.Itoa(each)))
		}
		held, refused := 0, 0
		for _, p := range clients {
			waitFor(t, p, "alive", 3*time.Minute)
			var h, r, ms, alive int
			if _, err := fmt.Sscanf(p.Output(), "tried %d %d %d <nil>\nalive %d", &h, &r, &ms, &alive); err != nil || alive != h {
				t.Errorf("%s: got %q: %v, want no error, alive == h", c.flags, p.Output(), err)
			}
			held, refused = held+h, refused+r
		}
		t.Logf("%s: %d held, %d refused, all in %v", c.flags, held, refused, time.Since(began).Round(time.Millisecond))
		if held != c.held || refused != processes*each-c.held {
			t.Errorf("%s: %d are held and %d refused, want %d and %d", c.flags, held, refused, c.held, processes*each-c.held)
		}
		if got := r.Metric("drops_total", "reason=snat-ports-exhausted") - before; got != float64(refused) {
			t.Errorf("%s: %v are counted as refused, want %d", c.flags, got, refused)
		}
		if got := r.Metric("service_connections_active", "service="+fmt.Sprintf("%s:80-%d/tcp", c.vip, 80+processes-1)); got != float64(held) {
			t.Errorf("%s: %v are active, want %d", c.flags, got, held)
		}
		for _, p := range append(clients, servers...) { // frees memory for the next ones
			p.Kill()
		}
	}
}

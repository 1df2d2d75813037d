package speaker

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"loxilb/internal/lb/bgp"
	"loxilb/test/await"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
	"loxilb/test/netnstest/routers"
)

// bird starts BIRD on the router. Options are added to both sessions.
func (l *link) bird(t testing.TB, options string) *routers.BIRD {
	t.Helper()
	b, err := routers.StartBIRD(l.lab, l.router, fmt.Sprintf(`router id 10.0.0.2;
protocol device {}
protocol bfd { interface "eth0" { interval 100 ms; multiplier 3; }; }
protocol bgp four { local 10.0.0.2 as %[1]d; neighbor 10.0.0.1 as %[2]d; connect retry time 1; error wait time 1,2; ipv4 { import all; export none; }; %[3]s }
protocol bgp six { local 2001:db8::2 as %[1]d; neighbor 2001:db8::1 as %[2]d; connect retry time 1; error wait time 1,2; ipv6 { import all; export none; }; %[3]s }
`, routerASN, uint32(nodeASN), options))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// awaitBIRDRoutes waits until BIRD's routes have these prefixes, and no others.
func awaitBIRDRoutes(t testing.TB, b *routers.BIRD, prefixes ...string) {
	t.Helper()
	await.NoError(t, testTimeout, func() error {
		out, err := b.Birdc("show", "route")
		if err != nil {
			return err
		}
		for _, p := range prefixes {
			if !strings.Contains(out, p) {
				return fmt.Errorf("BIRD has no route to %s: %s", p, out)
			}
		}
		if n := strings.Count(out, "unicast ["); n != len(prefixes) {
			return fmt.Errorf("BIRD has more routes than %v: %s", prefixes, out)
		}
		return nil
	})
}

// TestBIRD checks sessions and BFD with BIRD, and that a silent BIRD is noticed.
func TestBIRD(t *testing.T) {
	t.Parallel()
	l := newLink(t)
	b := l.bird(t, "bfd on;")
	c := startChild(t, l.node)
	c.call("SetRoutes", []bgp.Route{route(vip), route("2001:db8:1::1/128")})
	for _, addr := range []string{"10.0.0.2", "2001:db8::2"} {
		n := neighbor(addr)
		n.BFD = bgp.BFD{Interval: 100 * ms}
		c.call("SetNeighbor", n)
	}
	c.call("Start", bgp.Speaker{ASN: nodeASN})
	awaitBIRDRoutes(t, b, vip, "2001:db8:1::1/128")
	bfdUp(t, c, "10.0.0.2")
	bfdUp(t, c, "2001:db8::2")
	out, err := b.Birdc("show", "bfd", "sessions")
	if err != nil || strings.Count(out, " Up ") != 2 {
		t.Errorf("BIRD's BFD sessions are %s (%v), want two that are up", out, err)
	}
	t.Log(out)

	labtest.Run(t, l.node, "ip", "link", "set", "eth0", "down")
	awaitBIRDRoutes(t, b)
	labtest.Run(t, l.node, "ip", "link", "set", "eth0", "up")
	labtest.Run(t, l.node, "ip", "addr", "replace", "2001:db8::1/64", "dev", "eth0", "nodad")
	awaitBIRDRoutes(t, b, vip, "2001:db8:1::1/128")
	c.call("DeleteNeighbor", "2001:db8::2")
	awaitBIRDRoutes(t, b, vip)
}

// TestIntervals shows how gobgp v4.8.0 and FRR or BIRD send BFD packets. gobgp sends at its own
// interval even if the neighbor accepts fewer (its issue 3562), and without the jitter that RFC
// 5880 wants (its issue 3563). Both routers live with it.
func TestIntervals(t *testing.T) {
	t.Parallel()
	for _, router := range []string{"FRR", "BIRD"} {
		t.Run(router, func(t *testing.T) {
			t.Parallel()
			l := newLink(t)
			if router == "FRR" {
				l.frr(t, nodeASN, "bfd 3 400 100") // receives every 400 ms, sends every 100 ms
			} else {
				l.bird(t, "bfd { min rx interval 400 ms; min tx interval 100 ms; idle tx interval 100 ms; multiplier 3; };")
			}
			c := startChild(t, l.node)
			n := neighbor("10.0.0.2")
			n.BFD = bgp.BFD{Interval: 100 * ms}
			c.call("SetNeighbor", n)
			c.call("Start", bgp.Speaker{ASN: nodeASN})
			bfdUp(t, c, "10.0.0.2")
			ours, theirs := packetIntervals(t, l.router)
			t.Logf("gobgp sends every %v to %v", ours[0], ours[len(ours)-1])
			t.Logf("%s sends every %v to %v", router, theirs[0], theirs[len(theirs)-1])
			await.Steady(t, 3*time.Second, func() error {
				s, err := c.session("10.0.0.2")
				if err == nil && s.BFD != "Up" {
					err = fmt.Errorf("BFD is not up any longer: %+v", s)
				}
				return err
			})
		})
	}
}

// packetIntervals returns the times between BFD packets of the node and of the router, ascending.
func packetIntervals(t testing.TB, h *netnstest.Host) (node, router []time.Duration) {
	t.Helper()
	capture := []string{"tcpdump", "-ni", "eth0", "-tt", "-l", "udp port 3784 and ip"}
	out := labtest.Run(t, h, append([]string{"timeout", "--preserve-status", "4"}, capture...)...)
	var last [2]float64
	var list [2][]time.Duration
	for _, line := range strings.Split(out, "\n") {
		var at float64
		if _, err := fmt.Sscanf(line, "%f IP ", &at); err != nil {
			continue
		}
		from := 0
		if strings.Contains(line, "IP 10.0.0.2.") {
			from = 1
		}
		if last[from] > 0 {
			list[from] = append(list[from], time.Duration((at-last[from])*float64(time.Second)).Round(ms))
		}
		last[from] = at
	}
	for _, l := range list {
		if len(l) < 5 {
			t.Fatalf("too few packets: %s", out)
		}
		slices.Sort(l)
	}
	return list[0], list[1]
}

// TestNeighborRestarts checks that sessions come back after the neighbor was killed, was silent for
// a while, or ends the session itself.
func TestNeighborRestarts(t *testing.T) {
	t.Parallel()
	l := newLink(t)
	b := l.bird(t, "bfd on;")
	c := startChild(t, l.node)
	c.call("SetRoutes", []bgp.Route{route(vip)})
	n := neighbor("10.0.0.2")
	n.BFD = bgp.BFD{Interval: 100 * ms}
	c.call("SetNeighbor", n)
	c.call("Start", bgp.Speaker{ASN: nodeASN})
	back := func(how string) {
		t.Helper()
		start := time.Now()
		awaitBIRDRoutes(t, b, vip)
		t.Logf("%s: the route is back after %v", how, time.Since(start).Round(ms))
		bfdUp(t, c, "10.0.0.2")
	}
	back("start")
	b.Process().Kill()
	awaitSessionDown(t, c, "")
	b = l.bird(t, "bfd on;")
	back("killed")

	b.Process().Signal(syscall.SIGSTOP)
	awaitSessionDown(t, c, "BFD is down")
	b.Process().Signal(syscall.SIGCONT)
	back("silent")

	if _, err := b.Birdc("restart", "four"); err != nil {
		t.Fatal(err)
	}
	awaitSessionDown(t, c, "")
	back("restarted")
}

package speaker

import (
	"fmt"
	"net/netip"
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

// ms is the unit of BFD's intervals in tests.
const ms = time.Millisecond

// timeUntil polls FRR's table each millisecond, and returns how long after start it matches.
func timeUntil(t testing.TB, f *routers.FRR, start time.Time, what string, is func(map[netip.Prefix][]routers.Path) bool) time.Duration {
	t.Helper()
	for ; ; time.Sleep(ms) {
		routes, err := f.Routes()
		passed := time.Since(start)
		switch {
		case err != nil:
			t.Fatal(err)
		case is(routes):
			return passed
		case passed > testTimeout:
			t.Fatalf("FRR has not %s after %v: %v", what, passed, routes)
		}
	}
}

func has(prefix string) func(map[netip.Prefix][]routers.Path) bool {
	return func(r map[netip.Prefix][]routers.Path) bool { return len(r[netip.MustParsePrefix(prefix)]) > 0 }
}

func gone(r map[netip.Prefix][]routers.Path) bool { return len(r[netip.MustParsePrefix(vip)]) == 0 }

// checkMedian logs measured times, and checks their median against the goal.
func checkMedian(t testing.TB, what string, goal time.Duration, measured []time.Duration) {
	t.Helper()
	slices.Sort(measured)
	m := measured[len(measured)/2]
	t.Logf("%s: median %v of %v", what, m.Round(ms), measured)
	if m > goal*slowdown {
		t.Errorf("%s: the median is %v, more than %v", what, m, goal)
	}
}

// TestRouteChangeTimes checks how fast FRR sees changes of routes.
//
// P77 Routers see within 200 ms that a VIP is withdrawn, or announced with another MED or
// community.
func TestRouteChangeTimes(t *testing.T) {
	l := newLink(t)
	f := l.frr(t, nodeASN)
	c := startChild(t, l.node)
	c.call("SetNeighbor", neighbor("10.0.0.2"))
	c.call("Start", bgp.Speaker{ASN: nodeASN})
	c.established("10.0.0.2")
	vipWith := func(a bgp.Attributes) []bgp.Route {
		return []bgp.Route{{Prefix: netip.MustParsePrefix(vip), Attributes: a}}
	}
	var announce, med, shutdown, withdraw []time.Duration
	measure := func(to *[]time.Duration, routes []bgp.Route, what string, is func(map[netip.Prefix][]routers.Path) bool) {
		t.Helper()
		start := time.Now()
		c.call("SetRoutes", routes)
		*to = append(*to, timeUntil(t, f, start, what, is))
	}
	path := func(is func(routers.Path) bool) func(map[netip.Prefix][]routers.Path) bool {
		return func(r map[netip.Prefix][]routers.Path) bool {
			paths := r[netip.MustParsePrefix(vip)]
			return len(paths) == 1 && is(paths[0])
		}
	}
	for range rounds {
		measure(&announce, vipWith(bgp.Attributes{}), "the route", has(vip))
		measure(&med, vipWith(bgp.Attributes{MED: 100}), "another MED", path(func(p routers.Path) bool { return p.MED == 100 }))
		// FRR sets the local preference of such paths to 0, which its JSON leaves out.
		measure(&shutdown, vipWith(bgp.Attributes{MED: 1, Communities: []bgp.Community{bgp.GracefulShutdown}}), "a shutdown",
			path(func(p routers.Path) bool { return p.MED == 1 }))
		measure(&withdraw, nil, "no route", gone)
	}
	for what, m := range map[string][]time.Duration{
		"announce": announce, "another MED": med, "GRACEFUL_SHUTDOWN": shutdown, "withdraw": withdraw,
	} {
		checkMedian(t, what, 200*ms, m)
	}
}

// TestFailures checks how fast FRR drops the routes of a node that fails, and how fast it relearns
// them.
//
// P78 Routers drop the routes of a node within 200 ms after its link or process ends, and within
// 500 ms after it falls silent, by BFD at 3 x 100 ms.
func TestFailures(t *testing.T) {
	l := newLink(t)
	f := l.frr(t, nodeASN, "bfd 3 100 100")
	n := neighbor("10.0.0.2")
	n.BFD = bgp.BFD{Interval: 100 * ms, Multiplier: 3}
	begin := func() *child {
		c := startChild(t, l.node)
		c.call("SetNeighbor", n)
		c.call("SetRoutes", []bgp.Route{route(vip)})
		c.call("Start", bgp.Speaker{ASN: nodeASN, GracefulRestart: time.Minute})
		return c
	}
	up := func(c *child) routers.Neighbor {
		t.Helper()
		timeUntil(t, f, time.Now(), "the route", has(vip))
		bfdUp(t, c, "10.0.0.2")
		s, err := f.Neighbor("10.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	var down, back, killed, silent []time.Duration
	c := begin()
	for range rounds {
		before := up(c)
		labtest.Run(t, l.node, "ip", "link", "set", "eth0", "down")
		down = append(down, timeUntil(t, f, time.Now(), "no route", gone))
		labtest.Run(t, l.node, "ip", "link", "set", "eth0", "up")
		back = append(back, timeUntil(t, f, time.Now(), "the route", has(vip)))
		after := up(c)
		if after.Dropped != before.Dropped+1 {
			t.Errorf("the session was reset %d times by one failure of the link", after.Dropped-before.Dropped)
		}
	}
	for range rounds {
		up(c)
		c.process.Signal(syscall.SIGSTOP)
		silent = append(silent, timeUntil(t, f, time.Now(), "no route", gone))
		c.process.Signal(syscall.SIGCONT)
	}
	for range rounds {
		up(c)
		c.process.Signal(syscall.SIGKILL)
		killed = append(killed, timeUntil(t, f, time.Now(), "no route", gone))
		c = begin()
	}
	checkMedian(t, "link down", 200*ms, down)
	checkMedian(t, "link back", 5*time.Second, back)
	checkMedian(t, "kill -9", 200*ms, killed)
	checkMedian(t, "silent", 500*ms, silent)
}

// bfdUp waits until BFD with a neighbor is up.
func bfdUp(t testing.TB, c *child, key string) {
	t.Helper()
	await.NoError(t, testTimeout, func() error {
		s, err := c.session(key)
		if err == nil && s.BFD != "Up" {
			err = fmt.Errorf("BFD is not up: %+v", s)
		}
		return err
	})
}

// TestGracefulRestart checks that FRR keeps routes while the daemon restarts.
//
// P79 With graceful restart, routers change no route while the daemon restarts or after it is
// killed.
func TestGracefulRestart(t *testing.T) {
	for _, killed := range []bool{true, false} {
		t.Run(fmt.Sprintf("killed=%t", killed), func(t *testing.T) {
			l := newLink(t)
			f := l.frr(t, nodeASN)
			n, six := neighbor("10.0.0.2"), neighbor("2001:db8::2")
			routes := []bgp.Route{route(vip), route("100.64.0.2/32"), route("2001:db8:1::1/128")}
			begin := func() *child {
				c := startChild(t, l.node)
				c.call("Start", bgp.Speaker{ASN: nodeASN, GracefulRestart: time.Minute})
				c.call("SetNeighbor", n)
				c.call("SetNeighbor", six)
				return c
			}
			c := begin()
			c.call("SetRoutes", routes)
			awaitPrefixes(t, f, vip, "100.64.0.2/32", "2001:db8:1::1/128")
			awaitKernelRoutes(t, l.router, vip, "100.64.0.2/32", "2001:db8:1::1/128")
			changes := watchRoutes(t, l)
			if killed {
				c.process.Signal(syscall.SIGKILL)
			} else {
				c.call("Stop", "")
				c.process.Signal(syscall.SIGKILL)
			}
			await.NoError(t, testTimeout, func() error {
				s, err := f.Neighbor("10.0.0.1")
				if err == nil && s.State == Established {
					err = fmt.Errorf("FRR has not noticed that the daemon stopped: %+v", s)
				}
				return err
			})
			c = begin()
			await.Steady(t, 3*time.Second, func() error { // before SetRoutes, the new daemon withdraws nothing
				if r, err := f.Routes(); err != nil || len(r) != len(routes) {
					return fmt.Errorf("FRR has the routes %v, want %v (%w)", r, routes, err)
				}
				return nil
			})
			c.call("SetRoutes", routes)
			c.established("10.0.0.2")
			c.established("2001:db8::2")
			timeUntil(t, f, time.Now(), "fresh routes", func(r map[netip.Prefix][]routers.Path) bool {
				for _, paths := range r {
					for _, p := range paths {
						if p.Stale {
							return false
						}
					}
				}
				return len(r) == len(routes)
			})
			c.call("SetRoutes", append(routes, route("100.64.0.3/32"))) // the only change that the kernel may see
			timeUntil(t, f, time.Now(), "another route", has("100.64.0.3/32"))
			var got []string
			await.NoError(t, testTimeout, func() error {
				if got = changes(); !strings.Contains(strings.Join(got, "\n"), "100.64.0.3") {
					return fmt.Errorf("the added route is missing in the changes %q", got)
				}
				return nil
			})
			if len(got) != 1 {
				t.Errorf("the kernel's routes changed %d times, want once: %q", len(got), got)
			}
		})
	}
}

// watchRoutes watches the router's kernel. The returned function returns the changes of routes so
// far.
func watchRoutes(t testing.TB, l *link) func() []string {
	t.Helper()
	p, err := l.router.Start(monitor())
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	await.NoError(t, testTimeout, func() error {
		n++ // a new route each time: an existing one causes no message
		labtest.Run(t, l.router, "ip", "route", "add", fmt.Sprintf("192.0.2.%d/32", n), "dev", "lo")
		if !strings.Contains(p.Output(), "192.0.2.") {
			return fmt.Errorf("ip monitor is not ready: %q", p.Output())
		}
		return nil
	})
	return func() (changes []string) {
		for line := range strings.Lines(p.Output()) {
			// "Error: Peer netns reference is invalid." does not concern a route
			if !strings.Contains(line, "192.0.2.") && !strings.HasPrefix(line, "Error: ") {
				changes = append(changes, line)
			}
		}
		return changes
	}
}

// awaitKernelRoutes waits until the kernel of a host has routes by BGP to exactly these prefixes.
func awaitKernelRoutes(t testing.TB, h *netnstest.Host, prefixes ...string) {
	t.Helper()
	await.NoError(t, testTimeout, func() error {
		out := labtest.Run(t, h, "ip", "-4", "route", "show", "proto", "bgp") + labtest.Run(t, h, "ip", "-6", "route", "show", "proto", "bgp")
		for _, p := range prefixes {
			host := strings.TrimSuffix(strings.TrimSuffix(p, "/32"), "/128")
			if !strings.Contains(out, host+" ") {
				return fmt.Errorf("the kernel has no route to %s: %s", p, out)
			}
		}
		if n := strings.Count(out, "\n"); n != len(prefixes) {
			return fmt.Errorf("the kernel has more routes than %v: %s", prefixes, out)
		}
		return nil
	})
}

package speaker

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"loxilb/internal/lb/bgp"
	"loxilb/test/await"
	"loxilb/test/netnstest/labtest"
	"loxilb/test/netnstest/routers"
)

// awaitSessionDown waits until the session with 10.0.0.2 is down, with a last error that contains
// want.
func awaitSessionDown(t testing.TB, c *child, want string) {
	t.Helper()
	await.NoError(t, testTimeout, func() error {
		s, err := c.session("10.0.0.2")
		if err == nil && (s.State == Established || !strings.Contains(s.LastError, want)) {
			err = fmt.Errorf("the session is %+v, want it down by %q", s, want)
		}
		return err
	})
}

// TestPassword checks TCP MD5 signatures, and that a password can be changed and removed.
func TestPassword(t *testing.T) {
	t.Parallel()
	l := newLink(t)
	f := l.frr(t, nodeASN, "password first")
	c := startChild(t, l.node)
	c.call("SetRoutes", []bgp.Route{route(vip)})
	c.call("Start", bgp.Speaker{ASN: nodeASN})
	n := neighbor("10.0.0.2")
	for _, password := range []string{"first", "second", ""} {
		if err := f.Configure(fmt.Sprintf("router bgp %d", routerASN), "no neighbor 10.0.0.1 password"); err != nil {
			t.Fatal(err)
		}
		if password != "" {
			if err := f.Configure(fmt.Sprintf("router bgp %d", routerASN), "neighbor 10.0.0.1 password "+password); err != nil {
				t.Fatal(err)
			}
		}
		for _, passive := range []bool{false, true} { // then FRR's connection meets gobgp's socket
			n.Password, n.Passive = password, passive
			c.call("SetNeighbor", n)
			c.established("10.0.0.2")
			awaitPrefixes(t, f, vip)
		}
	}
	n.Password = "wrong"
	c.call("SetNeighbor", n)
	await.Steady(t, 4*time.Second, func() error {
		if s, err := c.session("10.0.0.2"); err != nil || s.State == Established {
			return fmt.Errorf("session with a wrong password: %+v, %w", s, err)
		}
		return nil
	})
	c.call("DeleteNeighbor", "10.0.0.2") // while it connects
	n.Password = ""
	c.call("SetNeighbor", n)
	c.established("10.0.0.2")
}

// TestWrongASN checks that a neighbor with another AS number is reported, and that the right one
// mends it.
func TestWrongASN(t *testing.T) {
	t.Parallel()
	l := newLink(t)
	f := l.frr(t, nodeASN)
	c := startChild(t, l.node)
	c.call("SetRoutes", []bgp.Route{route(vip)})
	c.call("Start", bgp.Speaker{ASN: nodeASN})
	n := neighbor("10.0.0.2")
	n.ASN = 65099
	c.call("SetNeighbor", n)
	awaitSessionDown(t, c, "peer as")
	n.ASN = routerASN
	c.call("SetNeighbor", n)
	awaitPrefixes(t, f, vip)
}

// TestPortInUse checks that a port in use is reported, and used once it is free.
func TestPortInUse(t *testing.T) {
	t.Parallel()
	l := newLink(t)
	f := l.frr(t, nodeASN)
	other, err := l.node.Listen("tcp", "[::]:179")
	if err != nil {
		t.Fatal(err)
	}
	c := startChild(t, l.node)
	c.call("SetRoutes", []bgp.Route{route(vip)})
	c.call("SetNeighbor", neighbor("10.0.0.2"))
	c.call("Start", bgp.Speaker{ASN: nodeASN})
	awaitSessionDown(t, c, "port 179 is in use")
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	awaitPrefixes(t, f, vip)
}

// TestMultihop checks a session over a router, and that it needs Multihop.
func TestMultihop(t *testing.T) {
	t.Parallel()
	l := newLink(t)
	f := l.frr(t, nodeASN, "ebgp-multihop 4", "update-source 192.0.2.9")
	labtest.Run(t, l.router, "ip", "addr", "add", "192.0.2.9/32", "dev", "lo")
	labtest.Run(t, l.node, "ip", "route", "add", "192.0.2.9", "via", "10.0.0.2")
	c := startChild(t, l.node)
	c.call("SetRoutes", []bgp.Route{route(vip)})
	c.call("Start", bgp.Speaker{ASN: nodeASN})
	n := neighbor("192.0.2.9")
	n.Multihop = 4
	c.call("SetNeighbor", n)
	c.established("192.0.2.9")
	awaitPrefixes(t, f, vip)
}

// TestTimers checks that the timers of a neighbor are in effect.
func TestTimers(t *testing.T) {
	t.Parallel()
	l := newLink(t)
	f := l.frr(t, nodeASN)
	c := startChild(t, l.node)
	c.call("Start", bgp.Speaker{ASN: nodeASN})
	n := neighbor("10.0.0.2")
	n.Hold, n.Keepalive = 12*time.Second, 3*time.Second
	c.call("SetNeighbor", n)
	c.established("10.0.0.2")
	text, err := f.Query("bgpd", "show bgp neighbors 10.0.0.1")
	if err != nil || !strings.Contains(text, "Hold time is 12") {
		t.Errorf(`got %v: %s, want no error, "Hold time is 12" in text`, err, text)
	}
}

// TestStop checks that neighbors are notified why sessions end, and that a stopped speaker starts
// again with the same neighbors and routes, and leaves no goroutines.
func TestStop(t *testing.T) {
	t.Parallel()
	l := newLink(t)
	f := l.frr(t, nodeASN, "bfd 3 100 100")
	c := startChild(t, l.node)
	before := c.usage()
	c.call("SetRoutes", []bgp.Route{route(vip)})
	n := neighbor("10.0.0.2")
	n.BFD = bgp.BFD{Interval: 100 * ms}
	c.call("SetNeighbor", n)
	for range 2 {
		c.call("Start", bgp.Speaker{ASN: nodeASN, GracefulRestart: time.Minute})
		awaitPrefixes(t, f, vip)
		c.call("Stop", "node is being drained")
		awaitPrefixes(t, f)
		s, err := f.Neighbor("10.0.0.1")
		if err != nil || s.LastMessage != "node is being drained" {
			t.Errorf("FRR was not notified: %+v, %v", s, err)
		}
	}
	for range 10 { // while sessions come up
		c.call("Start", bgp.Speaker{ASN: nodeASN})
		c.call("Stop", "")
	}
	await.NoError(t, testTimeout, func() error {
		if after := c.usage(); after.Goroutines > before.Goroutines+2 {
			return fmt.Errorf("goroutines: %d before, %d after", before.Goroutines, after.Goroutines)
		}
		return nil
	})
}

// TestRestarts checks that a change of the speaker restarts sessions only if it must.
func TestRestarts(t *testing.T) {
	t.Parallel()
	l := newLink(t)
	f := l.frr(t, nodeASN)
	c := startChild(t, l.node)
	c.call("SetRoutes", []bgp.Route{route(vip)})
	c.call("SetNeighbor", neighbor("10.0.0.2"))
	g := bgp.Speaker{ASN: nodeASN}
	c.call("Start", g)
	c.established("10.0.0.2")
	established := func() int {
		s, err := f.Neighbor("10.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		return s.Established
	}
	before := established()
	g.NextHopSelf, g.Install, g.MaxPrefixes = true, true, 10
	c.call("Start", g)
	c.call("SetNeighbor", neighbor("10.0.0.2"))
	c.call("SetNeighbor", neighbor("2001:db8::2"))
	c.established("2001:db8::2")
	if after := established(); after != before {
		t.Errorf("the session was restarted: %d, %d", before, after)
	}
	g.Port = 1179
	c.call("Start", g)
	await.NoError(t, testTimeout, func() error {
		if established() == before {
			return errors.New("the session is still the same")
		}
		return nil
	})
	awaitPrefixes(t, f, vip)
}

// TestUnnumbered checks a session without addresses, whose routes of both IP versions lead to
// link-local addresses.
func TestUnnumbered(t *testing.T) {
	t.Parallel()
	l := newLink(t)
	f, err := routers.StartFRR(l.lab, l.router, fmt.Sprintf(`router bgp %d
 bgp router-id 10.0.0.2
 no bgp ebgp-requires-policy
 neighbor eth0 interface remote-as external
 neighbor eth0 timers connect 1
 neighbor eth0 bfd 3 100 100
 address-family ipv6 unicast
  neighbor eth0 activate
 exit-address-family
`, routerASN))
	if err != nil {
		t.Fatal(err)
	}
	c := startChild(t, l.node)
	c.call("SetRoutes", []bgp.Route{route(vip), route("2001:db8:1::1/128")})
	c.call("SetNeighbor", bgp.Neighbor{Interface: "eth0", ASN: routerASN})
	c.call("Start", bgp.Speaker{ASN: nodeASN})
	routes := awaitPrefixes(t, f, vip, "2001:db8:1::1/128")
	for prefix, paths := range routes {
		if !paths[0].Valid || !strings.HasPrefix(paths[0].NextHops[0], "fe80::") {
			t.Errorf(`%v: got %+v, want paths[0].Valid, paths[0].NextHops[0] begins with "fe80::"`, prefix, paths)
		}
	}
	awaitKernelRoutes(t, l.router, vip, "2001:db8:1::1/128")
	c.established("eth0")

	c.call("SetPolicies", Policies{Apps: []bgp.Application{{Neighbor: "eth0", Reject: true}}})
	awaitPrefixes(t, f)
	c.call("SetPolicies", Policies{})
	awaitPrefixes(t, f, vip, "2001:db8:1::1/128")
	c.call("SetNeighbor", bgp.Neighbor{Interface: "eth0", ASN: routerASN, BFD: bgp.BFD{Interval: 100 * ms}})
	bfdUp(t, c, "eth0")
	c.call("DeleteNeighbor", "eth0")
	awaitPrefixes(t, f)
}

// TestRouterID checks that a node does not select a VIP as its router id: others may have it, too.
func TestRouterID(t *testing.T) {
	t.Parallel()
	for n, node := range map[string]string{"10.0.0.2": "10.0.0.1", "2001:db8::2": "2001:db8::1"} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			l := newLink(t)
			f := l.frr(t, nodeASN)
			labtest.Run(t, l.node, "ip", "addr", "add", "1.2.3.4/32", "dev", "lo")
			labtest.Run(t, l.node, "ip", "addr", "add", "1.2.3.5/24", "dev", "eth0")
			c := startChild(t, l.node)
			c.call("SetRoutes", []bgp.Route{route("1.2.3.5/32")})
			c.call("SetNeighbor", neighbor(n))
			c.call("Start", bgp.Speaker{ASN: nodeASN})
			c.established(n)
			text, err := f.Query("bgpd", "show bgp neighbors "+node)
			if err != nil || !strings.Contains(text, "remote router ID 10.0.0.1,") {
				t.Errorf(`got %v: %s, want no error, "remote router ID 10.0.0.1," in text`, err, text)
			}
		})
	}
}

// TestNoIPv6 checks that a machine without IPv6 speaks by IPv4.
func TestNoIPv6(t *testing.T) {
	t.Parallel()
	l := newLink(t)
	f := l.frr(t, nodeASN)
	if err := l.node.Sysctl("net/ipv6/conf/all/disable_ipv6", "1"); err != nil {
		t.Fatal(err)
	}
	c := startChild(t, l.node)
	c.call("SetRoutes", []bgp.Route{route(vip)})
	c.call("SetNeighbor", neighbor("10.0.0.2"))
	c.call("Start", bgp.Speaker{ASN: nodeASN})
	awaitPrefixes(t, f, vip)
}

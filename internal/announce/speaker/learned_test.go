package speaker

import (
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"loxilb/internal/lb/bgp"
	"loxilb/test/await"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
	"loxilb/test/netnstest/routers"
)

// setAnnounced makes FRR announce or withdraw a prefix.
func setAnnounced(t testing.TB, f *routers.FRR, prefix string, on bool) {
	t.Helper()
	family, no := "ipv4", ""
	if strings.Contains(prefix, ":") {
		family = "ipv6"
	}
	if !on {
		no = "no "
	}
	err := f.Configure(fmt.Sprintf("router bgp %d", routerASN), "no bgp network import-check",
		"address-family "+family+" unicast", no+"network "+prefix)
	if err != nil {
		t.Fatal(err)
	}
}

// TestLearnedRoutes checks that routes of neighbors reach the kernel only if wanted, leave it when
// withdrawn, and never reach other neighbors.
func TestLearnedRoutes(t *testing.T) {
	t.Parallel()
	l := newLink(t)
	f := l.frr(t, nodeASN)
	const four, six = "198.51.100.0/24", "2001:db8:99::/48"
	setAnnounced(t, f, four, true)
	setAnnounced(t, f, six, true)
	begin := func(install bool) *child {
		c := startChild(t, l.node)
		c.call("SetRoutes", []bgp.Route{route(vip)})
		c.call("SetNeighbor", neighbor("10.0.0.2"))
		c.call("SetNeighbor", neighbor("2001:db8::2"))
		c.call("Start", bgp.Speaker{ASN: nodeASN, Install: install})
		return c
	}
	received := func(c *child) {
		t.Helper()
		for _, key := range []string{"10.0.0.2", "2001:db8::2"} {
			await.NoError(t, testTimeout, func() error {
				s, err := c.session(key)
				if err == nil && s.Received == 0 {
					err = fmt.Errorf("not received: %+v", s)
				}
				return err
			})
		}
	}
	c := begin(false)
	received(c)
	awaitKernelRoutes(t, l.node)
	c.call("Start", bgp.Speaker{ASN: nodeASN, Install: true})
	awaitKernelRoutes(t, l.node, four, six)
	setAnnounced(t, f, four, false)
	awaitKernelRoutes(t, l.node, six)
	setAnnounced(t, f, four, true)
	awaitKernelRoutes(t, l.node, four, six)
	c.call("Start", bgp.Speaker{ASN: nodeASN})
	awaitKernelRoutes(t, l.node)
	c.call("Start", bgp.Speaker{ASN: nodeASN, Install: true})
	awaitKernelRoutes(t, l.node, four, six)

	labtest.Run(t, l.node, "ip", "route", "add", "203.0.113.0/24", "via", "10.0.0.2", "proto", "bgp", "metric", "20") // of another speaker
	c.process.Signal(syscall.SIGKILL)
	<-c.process.Done()
	awaitKernelRoutes(t, l.node, four, six, "203.0.113.0/24")
	c = begin(false)
	received(c)
	awaitKernelRoutes(t, l.node, "203.0.113.0/24")
	c.call("Start", bgp.Speaker{ASN: nodeASN, Install: true})
	awaitKernelRoutes(t, l.node, four, six, "203.0.113.0/24")
	c.call("Stop", "test")
	awaitKernelRoutes(t, l.node, "203.0.113.0/24")
}

// TestLearnedRoutesReturn checks that routes whose next hop is on another link than the session are
// in the kernel again after that link or another program has removed them.
func TestLearnedRoutesReturn(t *testing.T) {
	t.Parallel()
	l := newLink(t)
	f := l.frr(t, nodeASN)
	other, err := l.lab.Host("other")
	if err != nil {
		t.Fatal(err)
	}
	err = l.lab.Link(
		netnstest.End{Host: l.node, Interface: "eth1", Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.1.1/24")}},
		netnstest.End{Host: other, Interface: "eth0", Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.1.2/24")}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	const prefix = "198.51.100.0/24"
	setAnnounced(t, f, prefix, true)
	if err := f.Configure("route-map far permit 10", "set ip next-hop 10.0.1.2", fmt.Sprintf("router bgp %d", routerASN),
		"address-family ipv4 unicast", "neighbor 10.0.0.1 route-map far out"); err != nil {
		t.Fatal(err)
	}
	labtest.Run(t, l.node, "ip", "link", "set", "dev", "eth1", "down")
	c := startChild(t, l.node)
	c.call("SetNeighbor", neighbor("10.0.0.2"))
	c.call("Start", bgp.Speaker{ASN: nodeASN, Install: true})
	await.NoError(t, testTimeout, func() error {
		if !strings.Contains(c.process.Output(), "cannot be added to the kernel") {
			return fmt.Errorf("no route has failed: %s", c.process.Output())
		}
		return nil
	})
	labtest.Run(t, l.node, "ip", "link", "set", "dev", "eth1", "up")
	awaitKernelRoutes(t, l.node, prefix)
	for _, lose := range [][]string{
		{"route", "delete", prefix, "proto", "bgp"},
		{"link", "set", "dev", "eth1", "down"},
		{"address", "flush", "dev", "eth1"},
	} {
		labtest.Run(t, l.node, append([]string{"ip"}, lose...)...)
		labtest.Run(t, l.node, "ip", "link", "set", "dev", "eth1", "up")
		labtest.Run(t, l.node, "ip", "address", "replace", "10.0.1.1/24", "dev", "eth1")
		awaitKernelRoutes(t, l.node, prefix)
	}
	if n := strings.Count(c.process.Output(), "BGP session established"); n != 1 {
		t.Errorf("got %d sessions, want 1: the routes must return without a new one", n)
	}
}

// TestLearnedRoutesOverRestart checks that the kernel keeps learned routes while the process
// restarts, until its sessions are established again, but not those that the neighbor has withdrawn
// meanwhile.
func TestLearnedRoutesOverRestart(t *testing.T) {
	t.Parallel()
	l := newLink(t)
	f := l.frr(t, nodeASN)
	const stays, withdrawn = "198.51.100.0/24", "198.51.101.0/24"
	setAnnounced(t, f, stays, true)
	setAnnounced(t, f, withdrawn, true)
	begin := func() *child {
		c := startChild(t, l.node)
		c.call("SetNeighbor", neighbor("10.0.0.2"))
		c.call("Start", bgp.Speaker{ASN: nodeASN, Install: true})
		return c
	}
	c := begin()
	awaitKernelRoutes(t, l.node, stays, withdrawn)
	c.process.Signal(syscall.SIGKILL)
	<-c.process.Done()
	setAnnounced(t, f, withdrawn, false)
	changes, err := l.node.Start(monitor())
	if err != nil {
		t.Fatal(err)
	}
	begin()
	awaitKernelRoutes(t, l.node, stays)
	await.NoError(t, testTimeout, func() error {
		if out := changes.Output(); !strings.Contains(out, "Deleted "+withdrawn) {
			return fmt.Errorf("got changes %q, want %s deleted", out, withdrawn)
		}
		return nil
	})
	if out := changes.Output(); strings.Contains(out, "Deleted "+stays) {
		t.Errorf("got changes %q, want %s kept", out, stays)
	}
}

// TestNoTransit checks that a node does not announce to one neighbor what another has announced,
// even if it uses it.
func TestNoTransit(t *testing.T) {
	t.Parallel()
	l := newLink(t)
	f := l.frr(t, nodeASN)
	other, err := l.lab.Host("other")
	if err != nil {
		t.Fatal(err)
	}
	second := joinRouter(t, l, other)
	setAnnounced(t, f, "198.51.100.0/24", true)
	c := startChild(t, l.node)
	c.call("SetRoutes", []bgp.Route{route(vip)})
	c.call("SetNeighbor", neighbor("10.0.0.2"))
	c.call("SetNeighbor", neighbor("10.0.1.2"))
	c.call("Start", bgp.Speaker{ASN: nodeASN, Install: true})
	awaitKernelRoutes(t, l.node, "198.51.100.0/24")
	awaitPrefixes(t, second, vip)
}

// TestTooManyPrefixes checks that a neighbor with too many routes does not fill the memory.
func TestTooManyPrefixes(t *testing.T) {
	t.Parallel()
	l := newLink(t)
	f := l.frr(t, nodeASN)
	c := startChild(t, l.node)
	c.call("SetNeighbor", neighbor("10.0.0.2"))
	c.call("Start", bgp.Speaker{ASN: nodeASN, MaxPrefixes: 2})
	c.established("10.0.0.2")
	setAnnounced(t, f, "198.51.100.0/24", true)
	setAnnounced(t, f, "198.51.101.0/24", true)
	await.NoError(t, testTimeout, func() error {
		s, err := c.session("10.0.0.2")
		if err == nil && (s.State != Established || s.Received != 2) {
			err = fmt.Errorf("session: %+v", s)
		}
		return err
	})
	setAnnounced(t, f, "198.51.102.0/24", true)
	awaitSessionDown(t, c, "more than 2 prefixes")
	c.call("Start", bgp.Speaker{ASN: nodeASN, MaxPrefixes: 3}) // ends the pause
	c.established("10.0.0.2")
	c.call("Start", bgp.Speaker{ASN: nodeASN, MaxPrefixes: 2})
	awaitSessionDown(t, c, "more than 2 prefixes")
	c.call("DeleteNeighbor", "10.0.0.2")
	setAnnounced(t, f, "198.51.102.0/24", false)
	c.call("SetNeighbor", neighbor("10.0.0.2"))
	c.established("10.0.0.2")
}

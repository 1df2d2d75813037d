package speaker

import (
	"fmt"
	"net/netip"
	"testing"

	"loxilb/internal/lb/bgp"
	"loxilb/test/await"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
	"loxilb/test/netnstest/routers"
)

const (
	nodeASN   = 4200000001 // of four bytes
	routerASN = 65001
)

// link is a node and a router r on one link: 10.0.0.1 and 2001:db8::1, .2 and ::2.
type link struct {
	lab          *netnstest.Lab
	node, router *netnstest.Host
}

func newLink(t testing.TB) *link {
	t.Helper()
	l := &link{lab: labtest.New(t)}
	var err error
	if l.node, err = l.lab.Host("node"); err != nil {
		t.Fatal(err)
	}
	if l.router, err = l.lab.Host("router"); err != nil {
		t.Fatal(err)
	}
	end := func(h *netnstest.Host, n int) netnstest.End {
		return netnstest.End{Host: h, Interface: "eth0", Addresses: []netip.Prefix{
			netip.MustParsePrefix(fmt.Sprintf("10.0.0.%d/24", n)),
			netip.MustParsePrefix(fmt.Sprintf("2001:db8::%d/64", n)),
		}}
	}
	if err := l.lab.Link(end(l.node, 1), end(l.router, 2), 0); err != nil {
		t.Fatal(err)
	}
	return l
}

// frr starts FRR on the router. Options are lines of a neighbor, without "neighbor ADDRESS".
func (l *link) frr(t testing.TB, asn uint32, options ...string) *routers.FRR {
	t.Helper()
	config := fmt.Sprintf("router bgp %d\n bgp router-id 10.0.0.2\n no bgp ebgp-requires-policy\n", routerASN)
	for _, n := range []string{"10.0.0.1", "2001:db8::1"} {
		config += fmt.Sprintf(" neighbor %s remote-as %d\n neighbor %s timers connect 1\n", n, asn, n)
		for _, o := range options {
			config += fmt.Sprintf(" neighbor %s %s\n", n, o)
		}
	}
	config += " address-family ipv4 unicast\n  no neighbor 2001:db8::1 activate\n exit-address-family\n"
	config += " address-family ipv6 unicast\n  neighbor 2001:db8::1 activate\n exit-address-family\n"
	f, err := routers.StartFRR(l.lab, l.router, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("bgpd:\n%s", f.Log("bgpd"))
		}
	})
	return f
}

func neighbor(addr string) bgp.Neighbor {
	return bgp.Neighbor{Addr: netip.MustParseAddr(addr), ASN: routerASN}
}

func route(prefix string) bgp.Route { return bgp.Route{Prefix: netip.MustParsePrefix(prefix)} }

// awaitPrefixes waits until FRR has exactly these prefixes.
func awaitPrefixes(t testing.TB, f *routers.FRR, prefixes ...string) map[netip.Prefix][]routers.Path {
	t.Helper()
	var routes map[netip.Prefix][]routers.Path
	await.NoError(t, testTimeout, func() (err error) {
		if routes, err = f.Routes(); err != nil {
			return err
		}
		for _, p := range prefixes {
			if len(routes[netip.MustParsePrefix(p)]) == 0 {
				return fmt.Errorf("FRR has no %s: %v", p, routes)
			}
		}
		if len(routes) != len(prefixes) {
			return fmt.Errorf("FRR has more routes than %v: %v", prefixes, routes)
		}
		return nil
	})
	return routes
}

// TestAnnounce checks sessions and routes of both IP versions, by eBGP, with an AS number of four
// bytes.
func TestAnnounce(t *testing.T) {
	t.Parallel()
	l := newLink(t)
	f := l.frr(t, nodeASN)
	c := startChild(t, l.node)
	c.call("Start", bgp.Speaker{ASN: nodeASN})
	c.call("SetNeighbor", neighbor("10.0.0.2"))
	c.call("SetNeighbor", neighbor("2001:db8::2"))
	c.call("SetRoutes", []bgp.Route{route("100.64.0.1/32"), route("2001:db8:1::1/128")})
	routes := awaitPrefixes(t, f, "100.64.0.1/32", "2001:db8:1::1/128")
	for prefix, next := range map[string]string{"100.64.0.1/32": "10.0.0.1", "2001:db8:1::1/128": "2001:db8::1"} {
		p := routes[netip.MustParsePrefix(prefix)][0]
		if p.NextHops[0] != next || p.ASPath != fmt.Sprint(nodeASN) || !p.Valid {
			t.Errorf("%s: got path %+v, want a valid one by %s from AS %d", prefix, p, next, nodeASN)
		}
	}
	c.established("10.0.0.2")
	c.established("2001:db8::2")
	c.call("SetRoutes", []bgp.Route{route("100.64.0.2/32")})
	awaitPrefixes(t, f, "100.64.0.2/32")
	c.call("DeleteNeighbor", "10.0.0.2")
	awaitPrefixes(t, f)
	c.call("Stop", "test ends")
	if s := c.sessions(); len(s) != 1 || s[0].State != "Idle" {
		t.Errorf("sessions after Stop: %+v", s)
	}
}

// joinRouter links another host to the node, as 10.0.1.2, and starts FRR there.
func joinRouter(t testing.TB, l *link, h *netnstest.Host) *routers.FRR {
	t.Helper()
	err := l.lab.Link(
		netnstest.End{Host: l.node, Interface: "eth1", Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.1.1/24")}},
		netnstest.End{Host: h, Interface: "eth0", Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.1.2/24")}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	f, err := routers.StartFRR(l.lab, h, fmt.Sprintf(`router bgp %d
 bgp router-id 10.0.1.2
 no bgp ebgp-requires-policy
 neighbor 10.0.1.1 remote-as %d
 neighbor 10.0.1.1 timers connect 1
`, routerASN, nodeASN))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

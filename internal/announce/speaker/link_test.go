package speaker

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"loxilb/internal/lb/bgp"
	"loxilb/test/await"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
	"loxilb/test/netnstest/routers"
)

// TestLinkReturns checks a link-local neighbor whose interface is deleted: its session begins again
// at a new interface, and it can be deleted meanwhile.
func TestLinkReturns(t *testing.T) {
	t.Parallel()
	l := newLink(t)
	labtest.Run(t, l.node, "ip", "link", "delete", "dev", "eth0")
	labtest.Run(t, l.router, "ip", "link", "add", "eth0", "address", "02:00:00:00:00:02", "type", "bridge", "mcast_snooping", "0")
	labtest.Run(t, l.router, "ip", "link", "set", "dev", "eth0", "up")
	_, err := routers.StartFRR(l.lab, l.router, fmt.Sprintf(`router bgp %d
 bgp router-id 10.0.0.2
 no bgp ebgp-requires-policy
 neighbor fe80::ff:fe00:1 remote-as %d
 neighbor fe80::ff:fe00:1 interface eth0
 neighbor fe80::ff:fe00:1 timers connect 1
 neighbor fe80::ff:fe00:1 bfd 3 100 100
 address-family ipv6 unicast
  neighbor fe80::ff:fe00:1 activate
 exit-address-family
`, routerASN, nodeASN))
	if err != nil {
		t.Fatal(err)
	}
	relink := func() { // the router's interface stays
		t.Helper()
		if err := l.lab.Link(netnstest.End{Host: l.node, Interface: "eth0"}, netnstest.End{Host: l.router, Interface: "port"}, 0); err != nil {
			t.Fatal(err)
		}
		labtest.Run(t, l.router, "ip", "link", "set", "dev", "port", "master", "eth0")
		labtest.Run(t, l.node, "ip", "link", "set", "dev", "eth0", "down")
		labtest.Run(t, l.node, "ip", "link", "set", "dev", "eth0", "address", "02:00:00:00:00:01", "up")
	}
	unlink := func() { labtest.Run(t, l.node, "ip", "link", "delete", "dev", "eth0") }
	relink()
	c := startChild(t, l.node)
	c.call("SetRoutes", []bgp.Route{route(vip)})
	n := bgp.Neighbor{Addr: netip.MustParseAddr("fe80::ff:fe00:2%eth0"), ASN: routerASN, BFD: bgp.BFD{Interval: 100 * ms}}
	c.call("SetNeighbor", n)
	absent := bgp.Neighbor{Addr: netip.MustParseAddr("fe80::99%eth0"), ASN: routerASN, Password: "secret"}
	c.call("SetNeighbor", absent)
	c.call("Start", bgp.Speaker{ASN: nodeASN, RouterID: netip.MustParseAddr("10.0.0.1")})
	bfdUp(t, c, n.Key())
	unlink()
	await.NoError(t, testTimeout, func() error {
		s, err := c.session(n.Key())
		if err == nil && s.State == Established {
			err = fmt.Errorf("session without a link: %+v", s)
		}
		return err
	})
	c.call("DeleteNeighbor", absent.Key())
	relink()
	c.call("SetNeighbor", absent)
	c.established(n.Key())
	bfdUp(t, c, n.Key())
	for _, bad := range []string{"cannot be changed", "overwrite"} {
		if strings.Contains(c.process.Output(), bad) {
			t.Errorf("the log has %q", bad)
		}
	}
}

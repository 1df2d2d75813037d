package network_test

import (
	"net/netip"
	"testing"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
)

// TestInterfaceReplaced checks that an open connection continues after the interface towards its
// endpoint was deleted and another one with the same name was created.
func TestInterfaceReplaced(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	late, err := r.Host("late")
	if err != nil {
		t.Fatal(err)
	}
	connect := func() {
		here := netnstest.End{Host: late, Interface: "eth0", Addresses: []netip.Prefix{rig.Prefix("50.50.50.1/24")}}
		there := netnstest.End{Host: r.LB, Interface: "late", Addresses: []netip.Prefix{rig.Prefix("50.50.50.254/24")}}
		if err := r.Link(here, there, 0); err != nil {
			t.Fatal(err)
		}
		if err := late.AddRoute(rig.Prefix("0.0.0.0/0"), netip.MustParseAddr("50.50.50.254")); err != nil {
			t.Fatal(err)
		}
	}
	connect()
	if err := late.ServeTCP(":7", netnstest.Echo); err != nil {
		t.Fatal(err)
	}
	r.Loxicmd("create lb %s --tcp=7:7 --endpoints=50.50.50.1:1", rig.VIP4)
	c := r.Dial(rig.Join(rig.VIP4, 7))
	if err := rig.Exchange(c, "before\n"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		link, err := late.Netlink().LinkByName("eth0")
		if err != nil {
			t.Fatal(err)
		}
		if err := late.Netlink().LinkDel(link); err != nil {
			t.Fatal(err)
		}
		connect()
		if err := rig.Exchange(c, "after\n"); err != nil {
			t.Fatal(err)
		}
	}
}

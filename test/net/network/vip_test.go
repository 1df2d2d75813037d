package network_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// TestVIPForms checks that a VIP works as an address of an interface, on loopback, and without an
// interface: if it is routed to the balancer, or in the client's subnet.
func TestVIPForms(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	r.ServeNames()
	for _, a := range []string{"20.20.20.9/32", "2001:db8:20::9/128"} {
		if err := r.LB.AddAddress("lo", rig.Prefix(a)); err != nil {
			t.Fatal(err)
		}
	}
	for name, vips := range map[string][2]string{
		"interface":         {"100.100.100.254", "2001:db8:100::fe"},
		"another interface": {"31.31.31.254", "2001:db8:31::fe"},
		"loopback":          {"20.20.20.9", "2001:db8:20::9"},
		"nobody's, routed":  {rig.VIP4, rig.VIP6},
		"nobody's, on link": {"100.100.100.200", "2001:db8:100::200"},
	} {
		t.Run(name, func(t *testing.T) {
			for i, vip := range vips {
				was := r.HasAddress(vip)
				r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s", vip, []string{rig.Endpoints4(), rig.Endpoints6()}[i])
				r.WantAnswers(rig.Join(vip, 80), "ep1", "ep2", "ep3")
				if !r.HasAddress(vip) {
					t.Errorf("no interface has %s", vip)
				}
				r.Loxicmd("delete lb %s --tcp=80", vip)
				labtest.Eventually(t, rig.Patience, func(context.Context) error {
					if r.HasAddress(vip) != was {
						return fmt.Errorf("%s: an interface had this address before the service: %v; after: %v", vip, was, !was)
					}
					return nil
				})
			}
		})
	}
}

// TestSharedVIP checks that the address of two services is removed with the last of them.
func TestSharedVIP(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	r.ServeNames()
	r.Loxicmd("create lb %s --tcp=80:5001,81:5001 --endpoints=%s", rig.VIP4, rig.Endpoints4())
	r.Loxicmd("delete lb %s --tcp=80", rig.VIP4)
	r.WantAnswers(rig.Join(rig.VIP4, 81), "ep1", "ep2")
	if !r.HasAddress(rig.VIP4) {
		t.Errorf("%s was removed with the first of two services", rig.VIP4)
	}
	r.Loxicmd("delete lb %s --tcp=81", rig.VIP4)
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		if r.HasAddress(rig.VIP4) {
			return fmt.Errorf("VIP %s still exists", rig.VIP4)
		}
		return nil
	})
}

// TestAnnounce checks that the balancer announces a new VIP in a subnet whose hosts have another
// MAC address for it.
func TestAnnounce(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	r.ServeNames()
	right, err := r.LB.MAC("client")
	if err != nil {
		t.Fatal(err)
	}
	link, err := r.Client.Netlink().LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	for i, vip := range []string{"100.100.100.200", "2001:db8:100::200"} {
		// STALE, not REACHABLE: the kernel ignores announcements for a REACHABLE entry for some
		// seconds.
		err := r.Client.Netlink().NeighSet(&netlink.Neigh{
			LinkIndex: link.Attrs().Index, State: netlink.NUD_STALE, IP: net.ParseIP(vip),
			HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 99},
		})
		if err != nil {
			t.Fatal(err)
		}
		r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s", vip, []string{rig.Endpoints4(), rig.Endpoints6()}[i])
		labtest.Eventually(t, rig.Patience, func(context.Context) error {
			neighbours, err := r.Client.Netlink().NeighList(link.Attrs().Index, netlink.FAMILY_ALL)
			if err != nil {
				return err
			}
			for _, n := range neighbours {
				if n.IP.Equal(net.ParseIP(vip)) && bytes.Equal(n.HardwareAddr, right) {
					return nil
				}
			}
			return fmt.Errorf("the client does not have %s at %v: %v", vip, right, neighbours)
		})
		r.WantAnswers(rig.Join(vip, 80), "ep1")
	}
	wantAnswersInNetwork(t, r, "100.100.100.200")
}

// wantAnswersInNetwork checks that an endpoint gets no answer to an ARP request for a VIP of the
// client's network, unless the balancer's interface towards the endpoint also has an address of
// that network.
func wantAnswersInNetwork(t *testing.T, r *rig.Rig, vip string) {
	t.Helper()
	ep := r.Endpoints[0]
	asked := func(want bool) {
		t.Helper()
		labtest.Eventually(t, rig.Patience, func(context.Context) error {
			drops := r.Metric("drops_total", "reason=other-network")
			_, _ = ep.Run("ip", "neigh", "del", vip, "dev", "eth0")
			labtest.Run(t, ep, "ip", "neigh", "replace", vip, "dev", "eth0", "use")
			for range 100 { // wait for the answer
				answered := strings.Contains(labtest.Run(t, ep, "ip", "neigh", "show", vip), "lladdr")
				dropped := r.Metric("drops_total", "reason=other-network") > drops
				if answered == want && dropped != want {
					return nil
				}
				if answered || dropped {
					break
				}
			}
			return fmt.Errorf("ARP for %s: want an answer: %t", vip, want)
		})
	}
	asked(false)
	labtest.Run(t, r.LB, "ip", "address", "add", "100.100.100.253/25", "dev", "ep1")
	asked(true)
	labtest.Run(t, r.LB, "ip", "address", "del", "100.100.100.253/25", "dev", "ep1")
	asked(false)
}

// TestForwardingChanges checks that the daemon restores the data path's forwarding settings soon
// after someone has disabled and enabled forwarding, which resets them for every interface.
func TestForwardingChanges(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	r.ServeNames()
	r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s", rig.VIP4, rig.Endpoints4())
	r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s", rig.VIP6, rig.Endpoints6())
	for _, value := range []string{"1", "0"} {
		for _, name := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
			if err := r.LB.Sysctl(name, value); err != nil {
				t.Fatal(err)
			}
		}
		for _, vip := range []string{rig.VIP4, rig.VIP6} {
			labtest.Promised(t, 3*time.Second, func(context.Context) error {
				_, err := r.Ask(rig.Join(vip, 80))
				return err
			})
		}
	}
}

// TestEndpointMoves checks that connections continue when their endpoint returns with another MAC
// address while the balancer has cached its next hop.
func TestEndpointMoves(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Options: netnstest.Options{}})
	rig.ServeEcho(r)
	r.Loxicmd("create lb %s --tcp=7:7 --endpoints=31.31.31.1:1", rig.VIP4)
	c := r.Dial(rig.Join(rig.VIP4, 7))
	if err := rig.Exchange(c, "before\n"); err != nil {
		t.Fatal(err)
	}
	nl := r.Endpoints[0].Netlink()
	link, err := nl.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	if err := nl.LinkSetHardwareAddr(link, net.HardwareAddr{2, 0, 0, 0, 0, 77}); err != nil {
		t.Fatal(err)
	}
	// The endpoint announces its address, like a host that is started.
	if _, err := r.Endpoints[0].Run("ping", "-c1", "-W2", "31.31.31.254"); err != nil {
		t.Fatal(err)
	}
	if err := rig.Exchange(c, "after\n"); err != nil {
		t.Error(err)
	}
}

package net_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"loxilb/internal/netnstest"
	"loxilb/internal/netnstest/labtest"
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// TestVIPForms: a VIP works when it is an address of an interface, on loopback, or nobody's: routed here, or within
// the client's subnet.
func TestVIPForms(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	r.serveNames()
	for _, a := range []string{"20.20.20.9/32", "2001:db8:20::9/128"} {
		if err := r.LB.AddAddress("lo", prefix(a)); err != nil {
			t.Fatal(err)
		}
	}
	for name, vips := range map[string][2]string{
		"interface":         {"100.100.100.254", "2001:db8:100::fe"},
		"another interface": {"31.31.31.254", "2001:db8:31::fe"},
		"loopback":          {"20.20.20.9", "2001:db8:20::9"},
		"nobody's, routed":  {vip4, vip6},
		"nobody's, on link": {"100.100.100.200", "2001:db8:100::200"},
	} {
		t.Run(name, func(t *testing.T) {
			for i, vip := range vips {
				was := r.hasAddress(vip)
				r.loxicmd("create lb %s --tcp=80:5001 --endpoints=%s", vip, []string{endpoints4(), endpoints6()}[i])
				r.wantAnswers(join(vip, 80), "ep1", "ep2", "ep3")
				if !r.hasAddress(vip) {
					t.Errorf("no interface has %s", vip)
				}
				r.loxicmd("delete lb %s --tcp=80", vip)
				labtest.Eventually(t, patience, func(context.Context) error {
					if r.hasAddress(vip) != was {
						return fmt.Errorf("%s: an interface had it before the service: %v; after: %v", vip, was, !was)
					}
					return nil
				})
			}
		})
	}
}

// hasAddress tells whether an interface of the balancer has an address.
func (r *rig) hasAddress(address string) bool {
	r.t.Helper()
	addresses, err := r.LB.Netlink().AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, a := range addresses {
		if a.IP.Equal(net.ParseIP(address)) {
			return true
		}
	}
	return false
}

// TestSharedVIP: the address of two services goes with the last of them.
func TestSharedVIP(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	r.serveNames()
	r.loxicmd("create lb %s --tcp=80:5001,81:5001 --endpoints=%s", vip4, endpoints4())
	r.loxicmd("delete lb %s --tcp=80", vip4)
	r.wantAnswers(join(vip4, 81), "ep1", "ep2")
	if !r.hasAddress(vip4) {
		t.Errorf("%s went with the first of two services", vip4)
	}
	r.loxicmd("delete lb %s --tcp=81", vip4)
	labtest.Eventually(t, patience, func(context.Context) error {
		if r.hasAddress(vip4) {
			return fmt.Errorf("%s is still there", vip4)
		}
		return nil
	})
}

// TestAnnounce: when a VIP appears in a subnet whose hosts believe it elsewhere, they are told.
func TestAnnounce(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	r.serveNames()
	right, err := r.LB.MAC("client")
	if err != nil {
		t.Fatal(err)
	}
	link, err := r.Client.Netlink().LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	for i, vip := range []string{"100.100.100.200", "2001:db8:100::200"} {
		// STALE, not REACHABLE: the kernel believes a change of an entry in use only after some seconds.
		err := r.Client.Netlink().NeighSet(&netlink.Neigh{
			LinkIndex: link.Attrs().Index, State: netlink.NUD_STALE, IP: net.ParseIP(vip),
			HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 99},
		})
		if err != nil {
			t.Fatal(err)
		}
		r.loxicmd("create lb %s --tcp=80:5001 --endpoints=%s", vip, []string{endpoints4(), endpoints6()}[i])
		labtest.Eventually(t, patience, func(context.Context) error {
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
		r.wantAnswers(join(vip, 80), "ep1")
	}
}

// TestForwardingChanges: somebody switches routing on and off again, which resets it for every interface; what the
// data path needs of it is mended within a moment.
func TestForwardingChanges(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	r.serveNames()
	r.loxicmd("create lb %s --tcp=80:5001 --endpoints=%s", vip4, endpoints4())
	r.loxicmd("create lb %s --tcp=80:5001 --endpoints=%s", vip6, endpoints6())
	for _, value := range []string{"1", "0"} {
		for _, name := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
			if err := r.LB.Sysctl(name, value); err != nil {
				t.Fatal(err)
			}
		}
		for _, vip := range []string{vip4, vip6} {
			labtest.Eventually(t, 3*time.Second, func(context.Context) error {
				_, err := r.ask(join(vip, 80))
				return err
			})
		}
	}
}

// TestEndpointMoves: an endpoint comes back with another MAC address under a cached next hop.
func TestEndpointMoves(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{Options: netnstest.Options{}})
	serveEcho(r)
	r.loxicmd("create lb %s --tcp=7:7 --endpoints=31.31.31.1:1", vip4)
	c := r.dial(join(vip4, 7))
	if err := exchange(c, "before\n"); err != nil {
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
	// As a host that comes up does: it tells its neighbours.
	if _, err := r.Endpoints[0].Run("ping", "-c1", "-W2", "31.31.31.254"); err != nil {
		t.Fatal(err)
	}
	if err := exchange(c, "after\n"); err != nil {
		t.Error(err)
	}
}

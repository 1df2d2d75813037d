package network_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// failover is the longest interruption while the network changes.
const failover = time.Second

// gapDetector detects interruptions of connections through the balancer. Local connections, which
// use no network, show when the machine itself causes delays.
type gapDetector struct {
	*rig.Rig
	balanced, local *rig.Clients
}

func newGapDetector(r *rig.Rig, connections int, addresses ...string) *gapDetector {
	r.T.Helper()
	d := &gapDetector{Rig: r, balanced: rig.NewClients(r), local: rig.NewClients(r)}
	if err := r.Client.ServeTCP("127.0.0.1:9", netnstest.Echo); err != nil {
		r.T.Fatal(err)
	}
	d.local.Hold("127.0.0.1:9", connections*len(addresses))
	for _, a := range addresses {
		d.balanced.Hold(a, connections)
	}
	d.balanced.AwaitAnswers()
	return d
}

// change runs `ip` commands on a host, and waits until all services have answered again.
func (d *gapDetector) change(h *netnstest.Host, commands ...string) {
	d.T.Helper()
	for _, c := range commands {
		rig.MustRun(d.T, h, append([]string{"ip"}, strings.Fields(c)...)...)
	}
	d.balanced.AwaitAnswers()
}

// wantUp waits until an interface is up. Before that, the kernel drops packets to it, including ARP
// requests.
func (d *gapDetector) wantUp(h *netnstest.Host, name string) {
	d.T.Helper()
	labtest.Eventually(d.T, rig.Patience, func(context.Context) error {
		if out := labtest.Run(d.T, h, "ip", "-brief", "link", "show", name); !strings.Contains(out, " UP ") {
			return errors.New(out)
		}
		return nil
	})
}

// finish fails the test if a connection was lost, or was interrupted for too long.
func (d *gapDetector) finish() {
	d.T.Helper()
	if err := d.balanced.Finish(); err != nil {
		d.T.Error(err)
	}
	if err := d.local.Finish(); err != nil {
		d.T.Error(err)
	}
	for _, gap := range d.balanced.Gaps(failover, d.local) {
		d.T.Errorf("connections were interrupted for %v", gap.Length())
	}
	d.T.Logf("%d bytes, the slowest took %v; the slowest local one %v", d.balanced.Answers(), d.balanced.Slowest, d.local.Slowest)
}

// TestInterfaceChanges changes the name, MTU, MAC address and IP addresses of the interfaces
// towards clients and endpoints under open connections.
//
// P30 Connections continue while an interface changes its name, MTU, MAC address or addresses
func TestInterfaceChanges(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	rig.ServeEcho(r)
	for _, s := range []string{"net/ipv4/conf/all/arp_notify", "net/ipv6/conf/all/ndisc_notify"} { // announce a changed MAC address
		if err := r.LB.Sysctl(s, "1"); err != nil {
			t.Fatal(err)
		}
	}
	r.Loxicmd("create lb %s --tcp=7:7 --endpoints=31.31.31.1:1", rig.VIP4)
	r.Loxicmd("create lb %s --tcp=7:7 --endpoints=[2001:db8:31::1]:1 --mode=fullnat", rig.VIP6)
	r.Loxicmd("create lb 100.100.100.200 --tcp=7:7 --endpoints=31.31.31.1:1 --mode=onearm") // loxilb announces this VIP
	d := newGapDetector(r, 3, rig.Join(rig.VIP4, 7), rig.Join(rig.VIP6, 7), "100.100.100.200:7")
	for i, name := range []string{"ep1", "client"} {
		d.change(r.LB, "link set "+name+" name other")
		d.EventuallyShows("get status", "interface", "other")
		d.change(r.LB, "link set other name "+name)
		d.change(r.LB, "link set "+name+" mtu 1400")
		d.change(r.LB, "link set "+name+" mtu 1500")
		d.change(r.LB, fmt.Sprintf("link set %s address 02:00:00:00:00:%02x", name, 0x70+i))
		d.change(r.LB, "address add 40.40.40.1/24 dev "+name, "address add 2001:db8:40::1/64 dev "+name)
		d.change(r.LB, "address del 40.40.40.1/24 dev "+name, "address del 2001:db8:40::1/64 dev "+name)
		far := map[string]*netnstest.Host{"ep1": r.Endpoints[0], "client": r.Client}[name]
		d.change(far, "link set eth0 mtu 1400", "link set eth0 mtu 1500")
	}
	d.finish()
}

// newDetourRig returns a rig with an endpoint behind two routers:
//
//	LB r1 .254 --- 10.52.1.1 r1 .254 --- 10.51.1.1 far 50.50.50.1
//	   r2 .254 --- 10.52.2.1 r2 .254 --- 10.51.2.1
//
// Replies take the second router.
func newDetourRig(t *testing.T, args ...string) (*rig.Rig, map[string]*netnstest.Host) {
	t.Helper()
	r := rig.New(t, rig.Options{Args: args})
	hosts := map[string]*netnstest.Host{}
	for _, name := range []string{"far", "r1", "r2"} {
		h, err := r.Host(name)
		if err != nil {
			t.Fatal(err)
		}
		hosts[name] = h
	}
	for n, name := range []string{"r1", "r2"} {
		h := hosts[name]
		for _, s := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
			if err := h.Sysctl(s, "1"); err != nil {
				t.Fatal(err)
			}
		}
		at := func(net, host int) []netip.Prefix {
			return []netip.Prefix{rig.Prefix(fmt.Sprintf("10.%d.%d.%d/24", net, n+1, host)), rig.Prefix(fmt.Sprintf("2001:db8:%d:%d::%d/64", net, n+1, host))}
		}
		join := func(a, b netnstest.End) {
			if err := r.Link(a, b, 0); err != nil {
				t.Fatal(err)
			}
		}
		join(netnstest.End{Host: r.LB, Interface: name, Addresses: at(52, 254)}, netnstest.End{Host: h, Interface: "lb", Addresses: at(52, 1)})
		join(netnstest.End{Host: h, Interface: "far", Addresses: at(51, 254)}, netnstest.End{Host: hosts["far"], Interface: name, Addresses: at(51, 1)})
		for _, c := range []string{
			"route add 50.50.50.1/32 via 10.51.%d.1", "-6 route add 2001:db8:50::1/128 via 2001:db8:51:%d::1",
			"route add default via 10.52.%d.254", "-6 route add default via 2001:db8:52:%d::254",
		} {
			rig.MustRun(t, h, append([]string{"ip"}, strings.Fields(fmt.Sprintf(c, n+1))...)...)
		}
	}
	for _, c := range []string{
		"address add 50.50.50.1/32 dev lo", "-6 address add 2001:db8:50::1/128 dev lo",
		"route add default via 10.51.2.254", "-6 route add default via 2001:db8:51:2::254",
	} {
		rig.MustRun(t, hosts["far"], append([]string{"ip"}, strings.Fields(c)...)...)
	}
	if err := hosts["far"].ServeTCP(":7", netnstest.Echo); err != nil {
		t.Fatal(err)
	}
	return r, hosts
}

// viaFirst returns the routes to the endpoint over the first router, viaSecond the backup routes.
func viaFirst() []string {
	return []string{"route add 50.50.50.1/32 via 10.52.1.1 metric 10", "-6 route add 2001:db8:50::1/128 via 2001:db8:52:1::1 metric 10"}
}

func viaSecond() []string {
	return []string{"route add 50.50.50.1/32 via 10.52.2.1 metric 20", "-6 route add 2001:db8:50::1/128 via 2001:db8:52:2::1 metric 20"}
}

// TestRouteFailover removes the path to an endpoint in several ways while another path exists.
//
// P31 When the route to an endpoint fails over to another one, its connections continue within a
// second
func TestRouteFailover(t *testing.T) {
	t.Parallel()
	r, hosts := newDetourRig(t)
	for _, c := range append(viaFirst(), viaSecond()...) {
		rig.MustRun(t, r.LB, append([]string{"ip"}, strings.Fields(c)...)...)
	}
	r.Loxicmd("create lb %s --tcp=7:7 --endpoints=50.50.50.1:1", rig.VIP4)
	r.Loxicmd("create lb %s --tcp=7:7 --endpoints=[2001:db8:50::1]:1 --mode=fullnat", rig.VIP6)
	d := newGapDetector(r, 5, rig.Join(rig.VIP4, 7), rig.Join(rig.VIP6, 7))
	withdrawn := []string{"route del 50.50.50.1/32 via 10.52.1.1", "-6 route del 2001:db8:50::1/128 via 2001:db8:52:1::1"}
	for range 3 {
		d.change(r.LB, withdrawn...) // like a routing daemon
		d.change(r.LB, viaFirst()...)
		d.change(r.LB, "link set r1 down")
		d.change(r.LB, "link set r1 up", "-6 address replace 2001:db8:52:1::254/64 dev r1 nodad")
		d.wantUp(r.LB, "r1")
		d.wantUp(hosts["r1"], "lb")
		d.change(r.LB, viaFirst()...)
	}
	d.finish()
}

// TestGatewayMoves moves one address between two routers on the balancer's bridge, as VRRP does.
// The new owner announces it.
//
// P32 When a gateway's address moves to another machine, connections through it continue within a
// second
func TestGatewayMoves(t *testing.T) {
	t.Parallel()
	r, hosts := newDetourRig(t)
	for _, c := range []string{"link add br0 type bridge", "link set br0 up", "address add 10.53.0.254/24 dev br0", "link set r1 master br0", "link set r2 master br0"} {
		rig.MustRun(t, r.LB, append([]string{"ip"}, strings.Fields(c)...)...)
	}
	for n, name := range []string{"r1", "r2"} {
		h := hosts[name]
		if err := h.Sysctl("net/ipv4/conf/default/arp_notify", "1"); err != nil {
			t.Fatal(err)
		}
		for _, c := range []string{
			fmt.Sprintf("address add 10.53.0.%d/24 dev lb", n+11), "link add vr link lb type macvlan mode bridge", "address add 10.53.0.1/24 dev vr",
			"route replace default via 10.53.0.254",
		} {
			rig.MustRun(t, h, append([]string{"ip"}, strings.Fields(c)...)...)
		}
	}
	rig.MustRun(t, hosts["r1"], "ip", "link", "set", "vr", "up")
	rig.MustRun(t, r.LB, "ip", "route", "add", "50.50.50.1/32", "via", "10.53.0.1")
	r.Loxicmd("create lb %s --tcp=7:7 --endpoints=50.50.50.1:1", rig.VIP4)
	d := newGapDetector(r, 9, rig.Join(rig.VIP4, 7))
	for range 3 {
		for _, move := range [][2]string{{"r1", "r2"}, {"r2", "r1"}} {
			down, err := hosts[move[0]].Netlink().LinkByName("vr")
			if err == nil { // in this process: a new process could wait for a CPU
				err = errors.Join(hosts[move[0]].Netlink().LinkSetDown(down), hosts[move[1]].Up("vr"))
			}
			if err != nil {
				t.Fatal(err)
			}
			d.balanced.AwaitAnswers()
		}
	}
	d.finish()
}

// TestRoutesFlap checks that connections continue, and changes are applied without delay, while
// 10,000 routes are added and removed.
//
// P33 10,000 flapping routes affect no connection and delay no change
func TestRoutesFlap(t *testing.T) {
	t.Parallel()
	const routes, rounds = 10000, 3
	r := rig.Shared(t)
	rig.ServeEcho(r)
	r.ServeNames()
	r.Loxicmd("create lb %s --tcp=7:7 --endpoints=%s", rig.VIP4, rig.Endpoints4())
	d := newGapDetector(r, 9, rig.Join(rig.VIP4, 7))
	for _, do := range []string{"add", "del"} {
		var lines strings.Builder
		for n := range routes {
			fmt.Fprintf(&lines, "route %s 99.0.%d.%d/32 via 31.31.31.1\n", do, n>>8, n&255)
		}
		if err := os.WriteFile(filepath.Join(r.Dir(), do), []byte(lines.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for n := range rounds {
		for _, do := range []string{"add", "del"} {
			d.change(r.LB, "-batch "+filepath.Join(r.Dir(), do))
		}
		r.Loxicmd("create lb %s --tcp=%d:5001 --endpoints=31.31.31.1:1", rig.VIP4, 80+n)
		r.WantAnswers(rig.Join(rig.VIP4, 80+n), "ep1")
	}
	d.finish()
}

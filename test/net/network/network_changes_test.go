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

// witness is clients of services that must not wait for long, and others whose packets use no
// network.
type witness struct {
	*rig.Rig
	through, beside *rig.Clients
}

func newWitness(r *rig.Rig, connections int, addresses ...string) *witness {
	r.T.Helper()
	w := &witness{Rig: r, through: rig.NewClients(r), beside: rig.NewClients(r)}
	if err := r.Client.ServeTCP("127.0.0.1:9", netnstest.Echo); err != nil {
		r.T.Fatal(err)
	}
	w.beside.Hold("127.0.0.1:9", connections*len(addresses))
	for _, a := range addresses {
		w.through.Hold(a, connections)
	}
	w.through.AwaitAnswers()
	return w
}

// change runs `ip` commands in a host, and waits until each connection has exchanged data again.
func (w *witness) change(h *netnstest.Host, commands ...string) {
	w.T.Helper()
	for _, c := range commands {
		rig.MustRun(w.T, h, append([]string{"ip"}, strings.Fields(c)...)...)
	}
	w.through.AwaitAnswers()
}

// wantUp waits until an interface is up: until then the kernel drops what it would send, including
// ARP requests.
func (w *witness) wantUp(h *netnstest.Host, name string) {
	w.T.Helper()
	labtest.Eventually(w.T, rig.Patience, func(context.Context) error {
		if out := labtest.Run(w.T, h, "ip", "-brief", "link", "show", name); !strings.Contains(out, " UP ") {
			return errors.New(out)
		}
		return nil
	})
}

// finish fails the test if a connection was lost, or was interrupted for too long.
func (w *witness) finish() {
	w.T.Helper()
	if err := w.through.Finish(); err != nil {
		w.T.Error(err)
	}
	if err := w.beside.Finish(); err != nil {
		w.T.Error(err)
	}
	for _, g := range w.through.Gaps(failover, w.beside) {
		w.T.Errorf("nothing came through for %v", g.Length())
	}
	w.T.Logf("%d bytes, the slowest took %v, beside %v", w.through.Answers(), w.through.Slowest, w.beside.Slowest)
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
	r.Loxicmd("create lb 100.100.100.200 --tcp=7:7 --endpoints=31.31.31.1:1 --mode=onearm") // its address is announced by loxilb
	w := newWitness(r, 3, rig.Join(rig.VIP4, 7), rig.Join(rig.VIP6, 7), "100.100.100.200:7")
	for i, name := range []string{"ep1", "client"} {
		w.change(r.LB, "link set "+name+" name other")
		w.EventuallyShows("get status", "interface", "other")
		w.change(r.LB, "link set other name "+name)
		w.change(r.LB, "link set "+name+" mtu 1400")
		w.change(r.LB, "link set "+name+" mtu 1500")
		w.change(r.LB, fmt.Sprintf("link set %s address 02:00:00:00:00:%02x", name, 0x70+i))
		w.change(r.LB, "address add 40.40.40.1/24 dev "+name, "address add 2001:db8:40::1/64 dev "+name)
		w.change(r.LB, "address del 40.40.40.1/24 dev "+name, "address del 2001:db8:40::1/64 dev "+name)
		far := map[string]*netnstest.Host{"ep1": r.Endpoints[0], "client": r.Client}[name]
		w.change(far, "link set eth0 mtu 1400", "link set eth0 mtu 1500")
	}
	w.finish()
}

// detour returns a rig with an endpoint behind two routers:
//
//	LB r1 .254 --- 10.52.1.1 r1 .254 --- 10.51.1.1 far 50.50.50.1
//	   r2 .254 --- 10.52.2.1 r2 .254 --- 10.51.2.1
//
// Replies take the second one.
func detour(t *testing.T, args ...string) (*rig.Rig, map[string]*netnstest.Host) {
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

// viaFirst returns the routes to the endpoint by the first router, viaSecond the backup routes.
func viaFirst() []string {
	return []string{"route add 50.50.50.1/32 via 10.52.1.1 metric 10", "-6 route add 2001:db8:50::1/128 via 2001:db8:52:1::1 metric 10"}
}

func viaSecond() []string {
	return []string{"route add 50.50.50.1/32 via 10.52.2.1 metric 20", "-6 route add 2001:db8:50::1/128 via 2001:db8:52:2::1 metric 20"}
}

// TestRouteFailover removes the path to an endpoint, in each way in which that can happen, while
// another path exists.
//
// P31 When the route to an endpoint fails over to another one, its connections continue within a
// second
func TestRouteFailover(t *testing.T) {
	t.Parallel()
	r, hosts := detour(t)
	for _, c := range append(viaFirst(), viaSecond()...) {
		rig.MustRun(t, r.LB, append([]string{"ip"}, strings.Fields(c)...)...)
	}
	r.Loxicmd("create lb %s --tcp=7:7 --endpoints=50.50.50.1:1", rig.VIP4)
	r.Loxicmd("create lb %s --tcp=7:7 --endpoints=[2001:db8:50::1]:1 --mode=fullnat", rig.VIP6)
	w := newWitness(r, 5, rig.Join(rig.VIP4, 7), rig.Join(rig.VIP6, 7))
	withdrawn := []string{"route del 50.50.50.1/32 via 10.52.1.1", "-6 route del 2001:db8:50::1/128 via 2001:db8:52:1::1"}
	for range 3 {
		w.change(r.LB, withdrawn...) // like a routing daemon
		w.change(r.LB, viaFirst()...)
		w.change(r.LB, "link set r1 down")
		w.change(r.LB, "link set r1 up", "-6 address replace 2001:db8:52:1::254/64 dev r1 nodad")
		w.wantUp(r.LB, "r1")
		w.wantUp(hosts["r1"], "lb")
		w.change(r.LB, viaFirst()...)
	}
	w.finish()
}

// TestGatewayMoves moves one address between two routers on the balancer's bridge, as VRRP does.
// The new owner announces it.
//
// P32 When a gateway's address moves to another machine, connections through it continue within a
// second
func TestGatewayMoves(t *testing.T) {
	t.Parallel()
	r, hosts := detour(t)
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
	w := newWitness(r, 9, rig.Join(rig.VIP4, 7))
	for range 3 {
		for _, move := range [][2]string{{"r1", "r2"}, {"r2", "r1"}} {
			down, err := hosts[move[0]].Netlink().LinkByName("vr")
			if err == nil { // in this process: a new one could wait for a CPU
				err = errors.Join(hosts[move[0]].Netlink().LinkSetDown(down), hosts[move[1]].Up("vr"))
			}
			if err != nil {
				t.Fatal(err)
			}
			w.through.AwaitAnswers()
		}
	}
	w.finish()
}

// TestRoutesFlap checks that connections continue and changes are applied as usual while 10,000
// routes come and go.
//
// P33 10,000 flapping routes disturb no connection and delay no change
func TestRoutesFlap(t *testing.T) {
	t.Parallel()
	const routes, rounds = 10000, 3
	r := rig.Shared(t)
	rig.ServeEcho(r)
	r.ServeNames()
	r.Loxicmd("create lb %s --tcp=7:7 --endpoints=%s", rig.VIP4, rig.Endpoints4())
	w := newWitness(r, 9, rig.Join(rig.VIP4, 7))
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
			w.change(r.LB, "-batch "+filepath.Join(r.Dir(), do))
		}
		r.Loxicmd("create lb %s --tcp=%d:5001 --endpoints=31.31.31.1:1", rig.VIP4, 80+n)
		r.WantAnswers(rig.Join(rig.VIP4, 80+n), "ep1")
	}
	w.finish()
}

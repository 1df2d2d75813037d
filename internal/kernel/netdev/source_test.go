package netdev

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// TestPaths checks that each host has a path, or a reason why not. A neighbour is in the source's
// network. A host behind a router is in the network of its route, and the router is in the source's
// network. The default route does not define the host's network.
func TestPaths(t *testing.T) {
	t.Parallel()
	a, _ := pair(t)
	run(t, a, "ip", "route", "add", "10.9.0.0/16", "via", "10.1.0.2")
	run(t, a, "ip", "route", "add", "10.8.0.0/20", "dev", "eth0")
	run(t, a, "ip", "route", "add", "default", "via", "10.1.0.2")
	run(t, a, "ip", "route", "add", "2001:db8:9::/56", "via", "2001:db8:1::2")
	run(t, a, "ip", "route", "add", "2001:db8:a::/52", "via", "fe80::2", "dev", "eth0")
	run(t, a, "ip", "route", "add", "unreachable", "10.66.0.0/16")
	n := openHost(t, a)
	want := map[netip.Addr]Path{}
	add := func(host, source string, sourceBits, routeBits uint8, routed bool) {
		want[netip.MustParseAddr(host)] = Path{Source: netip.MustParseAddr(source), SourceBits: sourceBits, RouteBits: routeBits, Routed: routed}
	}
	add("10.1.0.2", "10.1.0.1", 24, 0, false)
	add("10.9.0.1", "10.1.0.1", 24, 16, true)
	add("10.8.0.1", "10.1.0.1", 0, 20, false)
	add("203.0.113.1", "10.1.0.1", 24, 0, true)
	add("2001:db8:1::2", "2001:db8:1::1", 64, 0, false)
	add("2001:db8:9::7", "2001:db8:1::1", 64, 56, true)
	add("2001:db8:a::7", "2001:db8:1::1", 64, 52, true)
	without := ips("10.1.0.1", "10.66.0.1", "2001:db8:250::1")
	hosts := without
	for host := range want {
		hosts = append(hosts, host)
	}
	found, missing, err := n.Sources().Paths(t.Context(), hosts)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, found, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("found: -want +got\n%s", diff)
	}
	for _, host := range without {
		if missing[host] == nil {
			t.Errorf("%s has neither a path nor a reason", host)
		}
	}
	if len(missing) != len(without) {
		t.Errorf("missing: %v", missing)
	}
}

// TestRoutes checks that each host gets its route in the table. Hosts without one, and this machine
// itself, are left out.
func TestRoutes(t *testing.T) {
	t.Parallel()
	a, _ := pair(t)
	run(t, a, "ip", "route", "add", "10.9.0.0/16", "via", "10.1.0.2", "metric", "7")
	run(t, a, "ip", "route", "add", "2001:db8:9::/56", "via", "2001:db8:1::2")
	n := openHost(t, a)
	got, err := n.Sources().Routes(t.Context(), ips("10.1.0.1", "10.1.0.2", "10.9.9.9", "2001:db8:9::7", "192.0.2.1"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"10.1.0.2": "10.1.0.0/24 eth0", "10.9.9.9": "10.9.0.0/16 metric 7 via 10.1.0.2 eth0", "2001:db8:9::7": "2001:db8:9::/56 via 2001:db8:1::2 eth0"}
	if len(got) != len(want) {
		t.Errorf("%d hosts have a route: %v", len(got), got)
	}
	for host, text := range want {
		if r := got[netip.MustParseAddr(host)]; r.String()+" "+r.Dev != text {
			t.Errorf("%s: %s %s, want %s", host, r, r.Dev, text)
		}
	}
}

// TestContainers checks which hosts are containers of this machine: those behind a veth of their
// own, and those on a bridge whose ports are veths. Neighbours behind this machine's own veth,
// which has its default route, are none; so are hosts of a bridge while it has another port.
func TestContainers(t *testing.T) {
	t.Parallel()
	lab := labtest.New(t)
	node, err := lab.Host("node")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"router", "own", "port", "wide"} {
		h, err := lab.Host(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := lab.Link(netnstest.End{Host: h, Interface: "eth0"}, netnstest.End{Host: node, Interface: name}, 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range []string{
		"address add 10.1.0.1/24 dev router", "route add default via 10.1.0.2", "route add 10.1.0.9/32 dev router",
		"address add 2001:db8:1::1/64 dev router nodad", "route add default via 2001:db8:1::2", "route add 2001:db8:1::9 dev router",
		"route add 10.2.0.5/32 dev own", "route add 2001:db8:2::5 dev own",
		"link add br0 type bridge", "link set br0 up", "link set port master br0",
		"address add 10.3.0.1/24 dev br0", "address add 2001:db8:3::1/64 dev br0 nodad",
		"route add 10.4.0.0/24 dev wide", "route add 10.5.0.0/24 via 10.3.0.9",
	} {
		run(t, node, append([]string{"ip"}, strings.Fields(args)...)...)
	}
	n, _ := runHost(t, node)
	containers := ips("10.2.0.5", "2001:db8:2::5", "10.3.0.9", "2001:db8:3::9")
	others := ips("10.1.0.2", "10.1.0.9", "2001:db8:1::9", "10.4.0.1", "10.5.0.1", "203.0.113.1")
	returns := func(want map[netip.Addr]bool) {
		t.Helper()
		eventually(t, func() error {
			found, _, err := n.Sources().Paths(t.Context(), slices.Concat(containers, others))
			if err != nil {
				return err
			}
			for host, path := range found {
				if path.Returns != want[host] {
					return fmt.Errorf("%s is a container: %t", host, path.Returns)
				}
			}
			if len(found) != len(containers)+len(others) {
				return fmt.Errorf("paths to %d hosts of %d: %v", len(found), len(containers)+len(others), found)
			}
			return nil
		})
	}
	want := map[netip.Addr]bool{}
	for _, a := range containers {
		want[a] = true
	}
	returns(want)
	run(t, node, "ip", "link", "add", "other", "type", "veth", "peer", "name", "inner")
	run(t, node, "ip", "link", "set", "other", "master", "br0")
	want[containers[2]], want[containers[3]] = false, false
	returns(want)
	run(t, node, "ip", "link", "set", "other", "nomaster")
	want[containers[2]], want[containers[3]] = true, true
	returns(want)
	run(t, node, "ip", "route", "replace", "default", "dev", "own")
	want[containers[0]], want[containers[1]] = false, false
	returns(want)
}

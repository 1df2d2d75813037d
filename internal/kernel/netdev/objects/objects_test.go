package objects

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/netdev/netlink"
	"loxilb/internal/lb/netobj"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// kernelOf opens the network objects of a host.
func kernelOf(t *testing.T, h *netnstest.Host) *Kernel {
	t.Helper()
	ns, err := netlink.OpenNamespace(h.Path())
	if err != nil {
		t.Fatal(err)
	}
	k, err := Open(ns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		k.Close()
		_ = ns.Close()
	})
	return k
}

// must returns an object that was read without an error.
func must[T any](o T, err error) T {
	if err != nil {
		panic(err)
	}
	return o
}

// testKind makes an object, finds it, checks that a second one is refused or accepted as the same,
// and removes it twice.
func testKind[T netobj.Object[T]](t *testing.T, k netobj.Kernel[T], o T) {
	t.Helper()
	there := func() bool {
		all, err := k.All()
		if err != nil {
			t.Fatal(err)
		}
		for _, have := range all[o.Key()] {
			if o.SatisfiedBy(have) {
				return true
			}
		}
		return false
	}
	quick, looksUp := k.(netobj.Absent[T])
	if there() {
		t.Fatalf("%s is there before", o)
	}
	if looksUp && !quick.Absent(o) {
		t.Logf("%s has no lookup by key", o)
	}
	if err := k.Make(o); err != nil {
		t.Fatalf("%s: %v", o, err)
	}
	if !there() || looksUp && quick.Absent(o) {
		t.Errorf("%s is not found", o)
	}
	if err := k.Make(o); err != nil && !errors.Is(err, unix.EEXIST) {
		t.Errorf("%s again: %v", o, err)
	}
	for range 2 {
		if err := k.Remove(o); err != nil {
			t.Errorf("remove %s: %v", o, err)
		}
	}
	if there() {
		t.Errorf("%s still exists after it was removed", o)
	}
}

// TestKinds checks that each kind can be made, found and removed, of both IP versions.
func TestKinds(t *testing.T) {
	t.Parallel()
	a, _ := labtest.Pair(t)
	k := kernelOf(t, a)
	for _, p := range []string{"10.5.0.1/24", "2001:db8:5::1/64"} {
		testKind(t, Addresses{k}, must(netobj.ParseAddress("eth0", p)))
	}
	for _, r := range [][2]string{
		{"10.6.0.0/16", "10.1.0.2"},
		{"10.6.6.6/32", "10.1.0.2"},
		{"0.0.0.0/0", "10.1.0.2"},
		{"2001:db8:6::/48", "2001:db8:1::2"},
		{"::/0", "2001:db8:1::2"},
	} {
		for _, proto := range []string{"", "static"} {
			testKind(t, Routes{k}, must(netobj.ParseRoute(r[0], r[1], proto)))
		}
	}
	for _, n := range []string{"10.1.0.77", "2001:db8:1::77"} {
		testKind(t, Neighbors{k}, must(netobj.ParseNeighbor(n, "eth0", "02:00:00:00:00:77")))
	}
	err := Addresses{k}.Make(must(netobj.ParseAddress("eth9", "10.5.0.1/24")))
	if !errors.As(err, new(*netobj.NoDeviceError)) {
		t.Errorf("an address of a missing interface: %v", err)
	}
	if err := (Addresses{k}).Remove(must(netobj.ParseAddress("eth9", "10.5.0.1/24"))); err != nil {
		t.Errorf("an address that went with its interface: %v", err)
	}
	err = Routes{k}.Make(must(netobj.ParseRoute("10.6.0.0/16", "10.200.0.1", "")))
	if err == nil || !strings.Contains(err.Error(), "gateway 10.200.0.1 of route 10.6.0.0/16 is not in the network of any interface") {
		t.Errorf("a route by an unreachable gateway: %v", err)
	}
}

// TestConfirmedNeighbors checks that only hosts that answer, or did recently, count as live.
func TestConfirmedNeighbors(t *testing.T) {
	t.Parallel()
	a, _ := labtest.Pair(t)
	k := kernelOf(t, a)
	for host, state := range map[string]string{
		"10.1.0.71": "reachable", "10.1.0.72": "stale", "10.1.0.73": "permanent", "10.1.0.74": "noarp",
	} {
		labtest.Run(t, a, "ip", "neigh", "add", host, "lladdr", "02:00:00:00:00:77", "dev", "eth0", "nud", state)
	}
	list, err := (Neighbors{k}).Confirmed()
	if err != nil || len(list) != 1 || list[0].Addr.String() != "10.1.0.71" {
		t.Errorf("confirmed: %v, %v", list, err)
	}
}

// TestSeen checks that objects of others are shown, and that a route with several next hops, or
// with another metric, is not mistaken for ours.
func TestSeen(t *testing.T) {
	t.Parallel()
	a, _ := labtest.Pair(t)
	k := kernelOf(t, a)
	labtest.Run(t, a, "ip", "route", "add", "10.6.0.0/16", "nexthop", "via", "10.1.0.2", "nexthop", "via", "10.1.0.3")
	labtest.Run(t, a, "ip", "route", "add", "10.7.0.0/16", "via", "10.1.0.2", "metric", "100", "proto", "dhcp")
	labtest.Run(t, a, "ip", "-6", "route", "add", "2001:db8:7::/48", "via", "2001:db8:1::2")
	all, err := Routes{k}.All()
	if err != nil {
		t.Fatal(err)
	}
	if len(all["10.6.0.0/16"]) != 2 || len(all["10.7.0.0/16"]) != 0 || len(all["10.7.0.0/16 metric 100"]) != 1 || len(all["2001:db8:7::/48"]) != 1 {
		t.Errorf("routes: %v", all)
	}
	for _, r := range all["10.6.0.0/16"] {
		if err := (Routes{k}).Remove(r); err != nil {
			t.Error(err)
		}
	}
	if out := labtest.Run(t, a, "ip", "route"); strings.Contains(out, "10.6.0.0/16") || !strings.Contains(out, "10.7.0.0/16") {
		t.Errorf("routes after both ways of one were removed:\n%s", out)
	}
	ports, err := k.Ports()
	if err != nil || len(ports) != 2 || ports[0].Name != "lo" || ports[1].Name != "eth0" || !ports[1].Up || !ports[1].Carrier || len(ports[1].MAC) != 6 {
		t.Errorf("ports: %+v, %v", ports, err)
	}
	seen, err := Addresses{k}.Observed()
	if err != nil || len(seen) != 2 || seen[0].Dev != "eth0" || seen[0].Addresses[0].String() != "10.1.0.1/24" {
		t.Errorf("addresses: %v, %v", seen, err)
	}
	labtest.Run(t, a, "ip", "link", "del", "eth0")
	if all, err := (Neighbors{k}).Observed(); err != nil || len(all) != 0 {
		t.Errorf("neighbours of an interface that is gone: %v, %v", all, err)
	}
}

// TestBridgeKinds checks that VLANs and their members, tunnels and their peers, and forwarding
// entries can be made, found and removed.
func TestBridgeKinds(t *testing.T) {
	t.Parallel()
	a, _ := labtest.Pair(t)
	k := kernelOf(t, a)
	labtest.Run(t, a, "ip", "link", "add", "port1", "type", "veth", "peer", "port2")
	vlan := netobj.VLAN{ID: 100}
	testKind(t, VLANs{k}, vlan)
	if err := (VLANs{k}).Make(vlan); err != nil {
		t.Fatal(err)
	}
	if out := labtest.Run(t, a, "ip", "-o", "link", "show", "vlan100"); !strings.Contains(out, ",UP") {
		t.Errorf("the bridge is not up: %s", out)
	}
	member := must(netobj.ParseVLANMember("100", "port1", false))
	testKind(t, VLANMembers{k}, member)
	tagged := must(netobj.ParseVLANMember("100", "port2", true))
	if err := (VLANMembers{k}).Make(tagged); errors.Is(err, unix.EOPNOTSUPP) {
		if !strings.Contains(err.Error(), "the kernel refuses port2.100, for which it needs the module 8021q") {
			t.Errorf(`got %v, want "the kernel refuses port2.100, for which it needs the module 8021q" in the error`,
				err)
		}
		t.Log("the kernel has no 8021q:", err)
	} else {
		if err != nil {
			t.Fatal(err)
		}
		if err := (VLANMembers{k}).Remove(tagged); err != nil {
			t.Fatal(err)
		}
		testKind(t, VLANMembers{k}, tagged)
	}
	f := must(netobj.ParseFDB("02:00:00:00:00:99", "port1"))
	testKind(t, FDBs{k}, f) // an entry of the bridge itself
	if err := (FDBs{k}).Make(f); err != nil {
		t.Fatal(err)
	}
	if err := (VLANMembers{k}).Make(member); err != nil {
		t.Fatal(err)
	}
	if all, err := (FDBs{k}).All(); err != nil || len(all[f.Key()]) != 0 {
		t.Errorf("an entry of the interface's own counts for the bridge: %v, %v", all[f.Key()], err)
	}
	if err := (FDBs{k}).Make(f); err != nil {
		t.Fatal(err)
	}
	if out := labtest.Run(t, a, "bridge", "fdb", "show", "brport", "port1"); !strings.Contains(out, "02:00:00:00:00:99") || !strings.Contains(out, "master vlan100 static") {
		t.Errorf("the bridge has no entry:\n%s", out)
	}
	if err := (FDBs{k}).Remove(f); err != nil {
		t.Fatal(err)
	}
	if out := labtest.Run(t, a, "bridge", "fdb", "show"); strings.Contains(out, "02:00:00:00:00:99") {
		t.Errorf("an entry remains:\n%s", out)
	}
	other := must(netobj.ParseVLANMember("200", "port1", false))
	if err := (VLANs{k}).Make(netobj.VLAN{ID: 200}); err != nil {
		t.Fatal(err)
	}
	if err := (VLANMembers{k}).Make(other); err == nil || !strings.Contains(err.Error(), "interface port1 of vlan100 in its place, which loxilb has not made") {
		t.Errorf("an interface of another bridge: %v", err)
	}
	seen, err := VLANs{k}.Observed()
	if err != nil || len(seen) != 2 || len(seen[0].Members) != 1 || seen[0].Members[0] != member {
		t.Errorf("VLANs: %v, %v", seen, err)
	}
	testTunnels(t, a, k)
}

func testTunnels(t *testing.T, a *netnstest.Host, k *Kernel) {
	tunnel := netobj.VXLAN{ID: 78, Dev: "eth0"}
	testKind(t, VXLANs{k}, tunnel)
	if err := (VXLANs{k}).Make(tunnel); err != nil {
		t.Fatal(err)
	}
	for _, peer := range []string{"10.1.0.2", "10.1.0.3"} {
		testKind(t, VXLANPeers{k}, must(netobj.ParseVXLANPeer("78", peer)))
	}
	if err := (VXLANPeers{k}).Make(must(netobj.ParseVXLANPeer("78", "2001:db8:1::2"))); err == nil {
		t.Error("an IPv6 peer of a tunnel from IPv4")
	}
	if err := (VXLANs{k}).Make(netobj.VXLAN{ID: 79, Dev: "port2"}); err == nil || !strings.Contains(err.Error(), "interface port2 has no address that VXLAN 79 could come from") {
		t.Errorf("a tunnel from no address: %v", err)
	}
	labtest.Run(t, a, "ip", "address", "add", "2001:db8:5::1/64", "dev", "port2", "nodad")
	labtest.Run(t, a, "ip", "link", "set", "port2", "up")
	if err := (VXLANs{k}).Make(netobj.VXLAN{ID: 79, Dev: "port2"}); err != nil {
		t.Fatal(err)
	}
	testKind(t, VXLANPeers{k}, must(netobj.ParseVXLANPeer("79", "2001:db8:5::2")))
	labtest.Run(t, a, "ip", "link", "add", "vxlan80", "type", "bridge")
	labtest.Run(t, a, "ip", "link", "add", "vxlan81", "type", "vxlan", "id", "5", "dstport", "4790", "dev", "eth0")
	all, err := VXLANs{k}.All()
	if err != nil || len(all["80"]) != 1 || all["80"][0].String() != "vxlan80 (a bridge)" || len(all["81"]) != 1 || all["81"][0].String() != "vxlan81 (VXLAN 5)" {
		t.Errorf("tunnels: %v, %v", all, err)
	}
	if err := (VXLANs{k}).Remove(netobj.VXLAN{ID: 80}); err == nil {
		t.Error("a bridge is removed for a tunnel")
	}
	seen, err := VXLANs{k}.Observed()
	if err != nil || len(seen) != 3 || seen[1].Name != "vxlan78" || seen[1].Real != "eth0" {
		t.Errorf("tunnels: %v, %v", seen, err)
	}
}

package host

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"loxilb/internal/netnstest"
)

// scenario is one way in which the guest and its peers are set up.
type scenario struct {
	topology topology
	mtu      int
	offloads offloads
	xdp      string
}

// offloads says who cuts, joins and sums packets.
type offloads string

const (
	offloadsOn  offloads = "on"  // cards, on both sides: segments of up to 64 kB cross
	offloadsGRO offloads = "gro" // the peers send packets of the MTU, which the guest joins and cuts again
	offloadsOff offloads = "off" // nobody: packets of the MTU only, whole checksums
)

func (s scenario) String() string {
	return fmt.Sprintf("%s-%d-offloads-%s-xdp-%s", s.topology, s.mtu, s.offloads, s.xdp)
}

// scenarios are those of a run: each value at least once, or all combinations.
func scenarios() (all []scenario) {
	if os.Getenv("LOXILB_HOST_MATRIX") == "" {
		return []scenario{
			{plain, 1500, offloadsOn, "off"},
			{plain, 1500, offloadsOff, "native"},
			{plain, 9000, offloadsGRO, "off"},
			{vlan, 1500, offloadsOn, "native"},
			{bond, 9000, offloadsOn, "off"},
			{bridge, 1500, offloadsGRO, "native"},
		}
	}
	for _, topology := range []topology{plain, vlan, bond, bridge} {
		for _, mtu := range []int{1500, 9000} {
			for _, offloads := range []offloads{offloadsOn, offloadsGRO, offloadsOff} {
				for _, xdp := range []string{"off", "native"} {
					all = append(all, scenario{topology, mtu, offloads, xdp})
				}
			}
		}
	}
	return all
}

// TestHost: on a machine with cards of several queues, each mode brings files through whole in both
// directions, over IPv4 and IPv6, and TCP sends no more again than with plain routing through the
// same machine.
func TestHost(t *testing.T) {
	if os.Getenv("LOXILB_HOST_KERNEL") == "" {
		t.Skip("make test-host runs it")
	}
	n := newNetwork(t)
	only := os.Getenv("LOXILB_HOST_ONLY")
	for _, s := range scenarios() {
		if !strings.Contains(s.String(), only) {
			continue
		}
		t.Run(s.String(), func(t *testing.T) { n.check(t, s) })
		n.setTest(t)
	}
}

// check runs one scenario.
func (n *network) check(t *testing.T, s scenario) {
	n.setTest(t)
	t.Cleanup(n.reset)
	n.build(s.topology, s.mtu)
	n.setOffloads(s.offloads)
	routed := map[int]tally{}
	for _, family := range []int{4, 6} {
		routed[family] = n.measure(fmt.Sprintf("plain routing, IPv%d", family), n.routedTransfers(family))
	}
	n.startDaemon(s)
	n.createServices()
	for _, m := range modes {
		for _, family := range []int{4, 6} {
			n.compare(routed[family], m, family)
		}
	}
	n.checkDaemon(s)
	if s.xdpForwards() {
		n.checkTags()
	}
}

// tries is how often a mode may send more again than plain routing: an emulated machine on a busy
// one loses its turn now and then, and timers of TCP expire.
const tries = 3

// compare makes all transfers through a service of a mode, and compares them with plain routing.
func (n *network) compare(routed tally, mode string, family int) {
	n.t.Helper()
	name := fmt.Sprintf("mode %s, IPv%d", mode, family)
	for range tries {
		got := n.measure(name, n.balancedTransfers(mode, family))
		if got.again <= allowance(routed, got) || n.t.Failed() {
			return
		}
		n.t.Logf("%s: %v; plain routing: %v", name, got, routed)
	}
	n.t.Errorf("%s: TCP sends more again than with plain routing, %d times", name, tries)
}

// allowance is how many segments may be sent again: as many as with plain routing, and one in a
// hundred for the luck of an emulated machine.
func allowance(routed, got tally) int {
	return routed.again*(got.sent+1)/(routed.sent+1) + got.sent/100 + 5
}

// measure makes transfers, and returns what TCP has counted meanwhile.
func (n *network) measure(name string, transfers map[string]func() error) tally {
	n.t.Helper()
	n.steer()
	before, err := n.counters()
	if err != nil {
		n.t.Fatal(err)
	}
	faults := n.checksumErrors()
	start := time.Now()
	for what, transfer := range transfers {
		if err := transfer(); err != nil {
			n.t.Errorf("%s, %s: %v", name, what, err)
		}
	}
	took := time.Since(start)
	after, err := n.counters()
	if err != nil {
		n.t.Fatal(err)
	}
	if faults = n.checksumErrors() - faults; faults > 0 {
		n.t.Errorf("%s: %d packets arrived with wrong checksums", name, faults)
	}
	got := after.since(before)
	n.t.Logf("%-22s %4.1f s, %v", name, took.Seconds(), got)
	return got
}

// modes of services; "own" is the guest's own processes.
var modes = []string{"default", "onearm", "fullnat", "hostonearm", "dsr", "egress", "own"}

// vip is the VIP of a mode.
func vip(mode string, family int) string {
	v4, v6 := "20.20.20.", "fd20::"
	if mode == "hostonearm" { // clients reach an address of the guest
		return map[int]string{4: "10.1.0.254", 6: "fd01::fe"}[family]
	}
	if family == 6 {
		v4 = v6
	}
	return v4 + fmt.Sprint(slices.Index(modes, mode)+1)
}

// bracketed is an address as URLs and endpoints have it.
func bracketed(address string) string {
	if strings.Contains(address, ":") {
		return "[" + address + "]"
	}
	return address
}

// createServices has a service of each mode, and one of iperf3's.
func (n *network) createServices() {
	n.t.Helper()
	var script strings.Builder
	create := func(vip, flags string, endpoints ...string) {
		for i, e := range endpoints {
			endpoints[i] = bracketed(e) + ":1"
		}
		fmt.Fprintf(&script, "loxicmd create lb %s %s --endpoints=%s\n", vip, flags, strings.Join(endpoints, ","))
	}
	for family, net := range map[int]string{4: "10.2.0.", 6: "fd02::"} {
		servers := func() []string { return []string{net + "1", net + "2", net + "3"} }
		create(vip("default", family), "--tcp=80:5001", servers()...)
		create(vip("onearm", family), "--tcp=80:5001 --mode=onearm", servers()...)
		create(vip("fullnat", family), "--tcp=80:5001 --mode=fullnat", servers()...)
		create(map[int]string{4: "0.0.0.0", 6: "::"}[family], "--tcp=8000:5001 --mode=hostonearm", servers()...)
		create(vip("dsr", family), "--tcp=5001:5001 --mode=dsr", servers()...)
		create(vip("egress", family), "--tcp=81:5001 --egress", servers()...)
		create(vip("own", family), "--tcp=80:5001", servers()...)
		for _, m := range []string{"default", "onearm", "fullnat"} {
			create(vip(m, family), "--tcp=5201:5201 --probetype=none --mode="+m, net+"1") // iperf3 listens for one test
		}
	}
	n.run("%s", script.String())
}

// routedTransfers go through the guest without a balancer.
func (n *network) routedTransfers(family int) map[string]func() error {
	server := map[int]string{4: "10.2.0.1", 6: "fd02::1"}[family]
	return n.transfers(n.client, n.server, bracketed(server)+":5001", server)
}

// balancedTransfers go through a service.
func (n *network) balancedTransfers(mode string, family int) map[string]func() error {
	address := bracketed(vip(mode, family))
	switch mode {
	case "own":
		return map[string]func() error{"own download": func() error { return n.ownDownload("http://" + address) }}
	case "egress":
		outsider := map[int]string{4: "30.30.30.1", 6: "[fd30::1]"}[family]
		return n.transfers(n.server, n.client, outsider+":5001", "")
	case "dsr":
		return n.direct(family, n.transfers(n.client, n.server, address+":5001", ""))
	case "hostonearm":
		return n.transfers(n.client, n.server, address+":8000", "")
	}
	return n.transfers(n.client, n.server, address+":80", vip(mode, family))
}

// transfers are all between two hosts. iperf is the address of its server, if there is one.
func (n *network) transfers(from, to *netnstest.Host, http, iperf string) map[string]func() error {
	out := map[string]func() error{
		"downloads":    func() error { return n.download(from, "http://"+http) },
		"an upload":    func() error { return n.upload(from, to, "http://"+http) },
		"new requests": func() error { return n.request(from, "http://"+http) },
	}
	if iperf != "" {
		out["iperf3"] = func() error { return n.iperf(from, to, iperf) }
	}
	return out
}

// direct has replies take the direct link meanwhile.
func (n *network) direct(family int, transfers map[string]func() error) map[string]func() error {
	route := map[int][]string{
		4: {"10.1.0.0/24", "via", "10.9.0.1"},
		6: {"fd01::/64", "via", "fd09::1"},
	}[family]
	for what, transfer := range transfers {
		transfers[what] = func() error {
			_, err := n.server.Run(append([]string{"ip", "route", "replace"}, route...)...)
			if err == nil {
				err = transfer()
			}
			_, back := n.server.Run(append([]string{"ip", "route", "del"}, route...)...)
			return errors.Join(err, back)
		}
	}
	return transfers
}

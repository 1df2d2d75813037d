package host

import (
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"
)

// scenario is one configuration of the guest and its peers.
type scenario struct {
	topology topology
	mtu      int
	offloads offloads
	xdp      string
	sockets  sockets
}

// offloads selects who segments, merges and checksums packets.
type offloads string

const (
	offloadsOn  offloads = "on"  // cards on both sides segment and checksum: packets have up to 64 kB
	offloadsGRO offloads = "gro" // the peers send packets of the MTU, which the guest merges and segments again
	offloadsOff offloads = "off" // no offloads: packets of the MTU with complete checksums
)

// sockets is the value of --localsockpolicy, which decides how processes of the guest reach VIPs.
type sockets string

const (
	socketsOn  sockets = ""
	socketsOff sockets = "-localsockpolicy-off"
)

func (s scenario) String() string {
	return fmt.Sprintf("%s-%d-offloads-%s-xdp-%s%s", s.topology, s.mtu, s.offloads, s.xdp, s.sockets)
}

// scenarios returns the scenarios of a run: each value at least once, or all combinations. The
// values for the guest's own sockets are independent of the others.
func scenarios() (all []scenario) {
	if os.Getenv("LOXILB_HOST_MATRIX") == "" {
		return []scenario{
			{plain, 1500, offloadsOn, "off", socketsOn},
			{plain, 1500, offloadsOff, "native", socketsOff},
			{plain, 9000, offloadsGRO, "native", socketsOn},
			{trunk, 1500, offloadsOn, "native", socketsOn},
			{bond, 9000, offloadsOff, "off", socketsOn},
			{bridge, 1500, offloadsGRO, "native", socketsOff},
		}
	}
	for _, topology := range []topology{plain, trunk, bond, bridge} {
		for _, mtu := range []int{1500, 9000} {
			for _, offloads := range []offloads{offloadsOn, offloadsGRO, offloadsOff} {
				for _, xdp := range []string{"off", "native"} {
					all = append(all, scenario{topology, mtu, offloads, xdp, socketsOn})
				}
			}
		}
		all = append(all, scenario{topology, 1500, offloadsOn, "off", socketsOff})
	}
	return all
}

// TestHost checks on a machine with multi-queue cards that each mode transfers files intact in both
// directions, over IPv4 and IPv6. The endpoint sees the address that the mode promises, each frame
// has a correct checksum, all queues receive, and TCP retransmits no more than with plain routing
// through the same machine.
func TestHost(t *testing.T) {
	if os.Getenv("LOXILB_HOST_KERNEL") == "" {
		t.Skip("make test-host runs it")
	}
	n := newNetwork(t)
	only, err := regexp.Compile(os.Getenv("LOXILB_HOST_ONLY"))
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, s := range scenarios() {
		if !only.MatchString(s.String()) {
			continue
		}
		ran++
		t.Run(s.String(), func(t *testing.T) { n.check(t, s) })
		n.setTest(t)
	}
	if ran == 0 {
		t.Errorf("no scenario matches %q: %v", only, scenarios())
	}
}

// check runs one scenario.
func (n *network) check(t *testing.T, s scenario) {
	n.setTest(t)
	n.scenario = s
	t.Cleanup(n.reset)
	n.build(s.topology, s.mtu)
	n.setOffloads(s.offloads)
	queues := n.queues()
	routed := map[int]tally{}
	for _, family := range families {
		routed[family] = n.measure(fmt.Sprintf("plain routing, IPv%d", family), false, n.routedTransfers(family))
	}
	n.startDaemon(s)
	n.createServices()
	n.warmUp()
	for _, m := range modes {
		for _, family := range families {
			n.compare(routed[family], m, family)
		}
	}
	n.checkQueues(queues)
	if s.topology == bond {
		n.checkFailover(routed)
	}
	n.checkDaemon()
	if s.xdpForwards() {
		n.checkTags()
	}
}

// tries is the number of measurements before the test fails because a mode retransmits more than
// plain routing. An emulated machine on a busy one may be paused until TCP's timers expire.
const tries = 3

// compare makes all transfers through a service of a mode, and compares them with plain routing.
func (n *network) compare(routed tally, m mode, family int) {
	n.t.Helper()
	name := fmt.Sprintf("mode %s, IPv%d", m.name, family)
	if m.path == own && n.scenario.sockets == socketsOff {
		n.checkUnreachable(m.vip(family))
		return
	}
	forwarded := n.forwardedByXDP()
	for range tries {
		got := n.measure(name, m.tunnel(), n.balancedTransfers(m, family))
		if got.retransmitted <= allowance(routed, got) || n.t.Failed() {
			n.checkForwarded(m, name, n.forwardedByXDP()-forwarded)
			return
		}
		n.t.Logf("%s: %v; plain routing: %v", name, got, routed)
	}
	n.t.Errorf("%s: TCP retransmits more than with plain routing in %d measurements", name, tries)
}

// allowance returns how many segments may be retransmitted: as many as with plain routing, plus two
// in a thousand for the variance of an emulated machine.
func allowance(routed, got tally) int {
	return routed.retransmitted*(got.sent+1)/(routed.sent+1) + got.sent/500 + 5
}

// measure makes transfers, and returns what TCP has counted meanwhile. tunnel means that their
// packets are encapsulated, which prevents segmentation by cards.
func (n *network) measure(name string, tunnel bool, transfers []transfer) tally {
	n.t.Helper()
	n.steer()
	watched := n.watch()
	before, err := n.counters()
	if err != nil {
		n.t.Fatal(err)
	}
	faults := n.checksumErrors()
	start := time.Now()
	for _, t := range transfers {
		if err := t.make(); err != nil {
			n.t.Errorf("%s, %s: %v", name, t.what, err)
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
	got.wireCounts = n.endWatch(name, tunnel, watched)
	n.t.Logf("%-22s %4.1f s, %v", name, took.Seconds(), got)
	return got
}

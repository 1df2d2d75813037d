package cluster_test

import (
	"fmt"
	"testing"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/routers"
)

// secondRouterNetwork is the network between clients and the second router.
const secondRouterNetwork = 6

// otherRouter returns the number of the other router.
func otherRouter(number int) int { return 2*routerNumber - 1 - number }

func (f *fleet) routerNumbers() []int {
	if f.twoRouters {
		return []int{routerNumber, routerNumber - 1}
	}
	return []int{routerNumber}
}

// addRouter adds a second router to the nodes' network. Clients send it half of their packets. Both
// routers have BGP sessions with all nodes, and with each other.
func (f *fleet) addRouter(lab *netnstest.Lab) {
	f.t.Helper()
	var err error
	f.secondRouter, err = lab.Host("router2")
	must(f.t, err)
	f.enableForwarding(f.secondRouter)
	f.hashHeaders(f.client)
	must(f.t, lab.Link(f.linkEnd(f.client, "eth1", secondRouterNetwork, 2), f.linkEnd(f.secondRouter, "client", secondRouterNetwork, 1), 0))
	f.attach(lab, f.secondRouter, 2, routerNumber-1)
	for _, is6 := range []bool{false, true} {
		family, all := map[bool]string{false: "-4", true: "-6"}[is6], map[bool]string{false: "0.0.0.0/0", true: "::/0"}[is6]
		clients, via := prefix(is6, 0, 2).Masked().String(), address(is6, secondRouterNetwork, 2)
		rig.MustRun(f.t, f.secondRouter, "ip", family, "route", "add", clients, "via", via)
		rig.MustRun(f.t, f.secondRouter, "ip", family, "route", "add", prefix(is6, defaultModeNetwork, 2).Masked().String(), "via", via, "table", "100")
		rig.MustRun(f.t, f.secondRouter, "ip", family, "rule", "add", "from", vip(is6, "default"), "lookup", "100")
		rig.MustRun(f.t, f.client, "ip", family, "route", "replace", all, "nexthop", "via", address(is6, 0, 1), "nexthop", "via", address(is6, secondRouterNetwork, 1))
	}
	_, err = routers.StartFRR(lab, f.secondRouter, f.routerConfig(routerNumber-1))
	must(f.t, err)
}

// setRouterCut drops all frames between a node and the first router, or forwards them again. It
// also changes the node's default route, as a routing daemon would.
func (m *member) setRouterCut(cut bool) {
	m.fleet.t.Helper()
	table, via := "link-"+m.host.Name, routerNumber
	if cut {
		via = routerNumber - 1
		mac, err := m.fleet.router.MAC("br0")
		must(m.fleet.t, err)
		rig.MustRun(m.fleet.t, m.fleet.router, "nft",
			fmt.Sprintf("table netdev %[1]s { chain in { type filter hook ingress device %[2]s priority 0; ether daddr %[3]s drop; }; chain out { type "+
				"filter hook egress device %[2]s priority 0; ether saddr %[3]s drop; }; }",
				table, m.host.Name, mac))
	} else {
		rig.MustRun(m.fleet.t, m.fleet.router, "nft", "delete", "table", "netdev", table)
	}
	rig.MustRun(m.fleet.t, m.host, "ip", "-4", "route", "replace", "default", "via", address(false, 2, via))
	rig.MustRun(m.fleet.t, m.host, "ip", "-6", "route", "replace", "default", "via", address(true, 2, via))
}

// TestTwoRouters checks that no connection breaks when a node loses its link to one of two routers.
// The other router still sends packets to this node, while replies reach other nodes.
func TestTwoRouters(t *testing.T) {
	rig.Long(t)
	e := newExperiment(t, options{bfd: 100 * time.Millisecond, bin: rig.Bin(), twoRouters: true}, fullLoad())
	for n := range *roundCount {
		m := e.fleet.nodes[n%fleetSize]
		e.run("a node's link to one of two routers is lost", func() {
			e.failNode(func() { m.setRouterCut(true) })
			e.clients.awaitAnswers()
			m.setRouterCut(false)
			e.fleet.awaitNextHops(fleetSize)
		})
	}
	e.write(*out, "cluster-routers")
}

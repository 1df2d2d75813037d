package cluster_test

import (
	"fmt"
	"testing"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/routers"
)

// clientsOfSecond is the network between clients and the second router.
const clientsOfSecond = 6

// otherRouter returns the number of the other one of two routers.
func otherRouter(number int) int { return 2*routerNumber - 1 - number }

func (f *fleet) routerNumbers() []int {
	if f.twoRouters {
		return []int{routerNumber, routerNumber - 1}
	}
	return []int{routerNumber}
}

// addRouter adds a router at the nodes' network, over which clients send half of their packets.
// Both routers have BGP sessions with all nodes, and with each other.
func (f *fleet) addRouter(lab *netnstest.Lab) {
	f.t.Helper()
	var err error
	f.second, err = lab.Host("router2")
	must(f.t, err)
	f.routes(f.second)
	f.hashHeaders(f.client)
	must(f.t, lab.Link(f.end(f.client, "eth1", clientsOfSecond, 2), f.end(f.second, "client", clientsOfSecond, 1), 0))
	f.attach(lab, f.second, 2, routerNumber-1)
	for _, is6 := range []bool{false, true} {
		family, all := map[bool]string{false: "-4", true: "-6"}[is6], map[bool]string{false: "0.0.0.0/0", true: "::/0"}[is6]
		clients, via := prefix(is6, 0, 2).Masked().String(), address(is6, clientsOfSecond, 2)
		rig.MustRun(f.t, f.second, "ip", family, "route", "add", clients, "via", via)
		rig.MustRun(f.t, f.second, "ip", family, "route", "add", prefix(is6, clientsOfDefault, 2).Masked().String(), "via", via, "table", "100")
		rig.MustRun(f.t, f.second, "ip", family, "rule", "add", "from", vip(is6, "default"), "lookup", "100")
		rig.MustRun(f.t, f.client, "ip", family, "route", "replace", all, "nexthop", "via", address(is6, 0, 1), "nexthop", "via", address(is6, clientsOfSecond, 1))
	}
	_, err = routers.StartFRR(lab, f.second, f.routerConfig(routerNumber-1))
	must(f.t, err)
}

// cutRouter drops all frames between a node and the first router, or forwards them again. The
// node's default route changes with it, as a routing daemon of the node would do.
func (m *member) cutRouter(cut bool) {
	m.f.t.Helper()
	table, via := "link-"+m.host.Name, routerNumber
	if cut {
		via = routerNumber - 1
		mac, err := m.f.router.MAC("br0")
		must(m.f.t, err)
		rig.MustRun(m.f.t, m.f.router, "nft",
			fmt.Sprintf("table netdev %[1]s { chain in { type filter hook ingress device %[2]s priority 0; ether daddr %[3]s drop; }; chain out { type "+
				"filter hook egress device %[2]s priority 0; ether saddr %[3]s drop; }; }",
				table, m.host.Name, mac))
	} else {
		rig.MustRun(m.f.t, m.f.router, "nft", "delete", "table", "netdev", table)
	}
	rig.MustRun(m.f.t, m.host, "ip", "-4", "route", "replace", "default", "via", address(false, 2, via))
	rig.MustRun(m.f.t, m.host, "ip", "-6", "route", "replace", "default", "via", address(true, 2, via))
}

// TestTwoRouters checks that nothing breaks when a node's link to one of two routers is lost: it
// still gets packets from the other router, while replies reach other nodes.
func TestTwoRouters(t *testing.T) {
	rig.Long(t)
	p := newProof(t, options{bfd: 100 * time.Millisecond, bin: rig.Bin(), twoRouters: true}, fullLoad())
	for n := range *rounds {
		m := p.f.nodes[n%fleetSize]
		p.run("a node's link to one of two routers is lost", func() {
			p.silence(func() { m.cutRouter(true) })
			p.c.awaitAnswers()
			m.cutRouter(false)
			p.f.awaitSessions(fleetSize)
		})
	}
	p.write(*out, "cluster-routers")
}

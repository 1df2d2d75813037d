package ha_test

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"loxilb/test/await"
	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
)

// TestMissedEnds checks that connections that end while two nodes cannot reach each other end at
// both nodes after they are connected again. This holds for copies of the other node's connections,
// and for connections that the other node has opened.
func TestMissedEnds(t *testing.T) {
	t.Parallel()
	const connections, service = 5, "20.20.20.1:80"
	p := newClusterPair(t)
	client, server := p.serve()
	var held []net.Conn
	for node := len(p.nodes) - 1; node >= 0; node-- {
		p.routeThrough(client, "10.1", node)
		p.routeThrough(server, "10.9", node)
		held = append(held, hold(t, client, service, connections)...)
		for i := range p.nodes {
			p.awaitOpen(i, len(held))
		}
	}
	if broken := countBroken(held); broken > 0 {
		t.Fatalf("%d of %d connections do not continue through the other node", broken, len(held))
	}
	rig.MustRun(t, p.nodes[1].host, "nft", "table ip cut { chain input { type filter hook input priority 0; iifname eth0 drop; }; }")
	for _, c := range held {
		must(t, c.Close())
	}
	p.awaitEntries(0, "", 0) // node 0 has removed them
	await.NoError(t, patience, func() error { return p.checkDown(0) })
	p.awaitOpen(1, len(held))
	rig.MustRun(t, p.nodes[1].host, "nft", "delete", "table", "ip", "cut")
	p.awaitUp("10.4.0.2")
	for i := range p.nodes {
		p.awaitOpen(i, 0)
	}
}

// TestAsymmetricClose checks that connections end soon at both nodes if packets of clients pass one
// node and packets of endpoints the other, as after a change of routes. Each node misses half of
// the FINs and acknowledgements. Without the other node's records, it would count the connections
// for another two minutes.
func TestAsymmetricClose(t *testing.T) {
	t.Parallel()
	const connections, service = 5, "20.20.20.1:80"
	p := newClusterPair(t)
	client, server := p.serve()
	p.routeThrough(client, "10.1", 1)
	p.routeThrough(server, "10.9", 1)
	held := hold(t, client, service, connections)
	for i := range p.nodes {
		p.awaitOpen(i, len(held))
	}
	p.routeThrough(client, "10.1", 0)
	if broken := countBroken(held); broken > 0 {
		t.Fatalf("%d of %d connections do not continue through two nodes", broken, len(held))
	}
	for _, c := range held {
		must(t, c.Close())
	}
	for i := range p.nodes {
		for _, state := range []string{" est ", " fini ", " closed-wait "} {
			p.awaitEntries(i, state, 0)
		}
	}
}

// serve creates a client, a server, and a service on both nodes.
func (p *clusterPair) serve() (client, server *netnstest.Host) {
	p.t.Helper()
	client, server = p.host("client", "10.1.%d.%d"), p.host("server", "10.9.%d.%d")
	must(p.t, server.ServeTCP("10.9.9.9:80", answerLines))
	for _, m := range p.nodes {
		out, err := m.Command(strings.Fields("create lb 20.20.20.1 --tcp=80:80 --endpoints=10.9.9.9:1 --probetype=none")...)
		if err != nil {
			p.t.Fatalf("%v: %s", err, out)
		}
	}
	return client, server
}

// routeThrough routes packets of a host through a node. prefix is the beginning of the host's
// addresses.
func (p *clusterPair) routeThrough(h *netnstest.Host, prefix string, node int) {
	p.t.Helper()
	rig.MustRun(p.t, h, "ip", "route", "replace", "default", "via", fmt.Sprintf("%s.%d.1", prefix, node), "src", prefix+".9.9")
}

// host returns a new host with a link to each node. form is the format of addresses: its arguments
// are the number of the node, and 1 for the node or 2 for the host. Both nodes also route the
// address of 9 and 9 to the host.
func (p *clusterPair) host(name, form string) *netnstest.Host {
	p.t.Helper()
	h, err := p.lab.Host(name)
	must(p.t, err)
	both := fmt.Sprintf(form, 9, 9)
	must(p.t, h.AddAddress("lo", netip.MustParsePrefix(both+"/32")))
	for i, m := range p.nodes {
		end := func(h *netnstest.Host, name string, last int) netnstest.End {
			prefix := netip.PrefixFrom(netip.MustParseAddr(fmt.Sprintf(form, i, last)), 24)
			return netnstest.End{Host: h, Interface: name, Addresses: []netip.Prefix{prefix}}
		}
		must(p.t, p.lab.Link(end(h, m.host.Name, 2), end(m.host, name, 1), 0))
		rig.MustRun(p.t, m.host, "ip", "route", "add", both, "via", fmt.Sprintf(form, i, 2))
	}
	return h
}

// awaitOpen waits until a node has want open connections.
func (p *clusterPair) awaitOpen(node, want int) {
	p.t.Helper()
	p.awaitEntries(node, " est ", 2*want) // a line for each direction
}

// awaitEntries waits until a node has want entries that contain text.
func (p *clusterPair) awaitEntries(node int, text string, want int) {
	p.t.Helper()
	await.NoError(p.t, patience, func() error {
		out, err := p.nodes[node].Command("get", "ct")
		got := 0
		for line := range strings.Lines(out) {
			if strings.Contains(line, "20.20.20.1") && strings.Contains(line, text) {
				got++
			}
		}
		if err == nil && got != want {
			err = fmt.Errorf("node %d has %d entries with %q, want %d:\n%s", node, got, text, want, out)
		}
		return err
	})
}

// checkDown returns an error unless a node reports the other one as down.
func (p *clusterPair) checkDown(node int) error {
	list, _, err := p.peers(node)
	if err == nil && (len(list) != 1 || list[0].State != "down") {
		err = fmt.Errorf("node %d shows %+v", node, list)
	}
	return err
}

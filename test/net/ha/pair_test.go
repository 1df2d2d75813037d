package ha_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"loxilb/test/await"
	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
	"loxilb/test/netnstest/routers"
)

const (
	patience = 30 * time.Second
	vip      = "20.20.20.1"
	nodeASN  = 65010
)

// pair is two nodes between a router and two servers. Each node has a link to each server:
//
//	client - router - a, b - server1, server2
//
// Servers answer clients of mode dsr through the router.
type pair struct {
	t              testing.TB
	client, router *netnstest.Host
	nodes          [2]*node
	servers        [2]*netnstest.Host
	frr            *routers.FRR
}

// node is a balancer. The router has the address 10.1.N.1 on its link.
type node struct {
	*netnstest.Daemon
	t    testing.TB
	host *netnstest.Host
	addr string
}

func newPair(t testing.TB) *pair {
	t.Helper()
	lab := labtest.New(t)
	p := &pair{t: t}
	host := func(name string) *netnstest.Host {
		h, err := lab.Host(name)
		must(t, err)
		return h
	}
	p.client, p.router = host("client"), host("router")
	must(t, p.router.Sysctl("net/ipv4/ip_forward", "1"))
	must(t, p.router.Sysctl("net/ipv4/fib_multipath_hash_policy", "1"))
	link := func(a *netnstest.Host, an, aa string, b *netnstest.Host, bn, ba string) {
		end := func(h *netnstest.Host, name, addr string) netnstest.End {
			return netnstest.End{Host: h, Interface: name, Addresses: []netip.Prefix{netip.MustParsePrefix(addr + "/24")}}
		}
		must(t, lab.Link(end(a, an, aa), end(b, bn, ba), 0))
	}
	route := func(h *netnstest.Host, to, via string) {
		must(t, h.AddRoute(netip.MustParsePrefix(to), netip.MustParseAddr(via)))
	}
	link(p.client, "eth0", "10.0.0.2", p.router, "client", "10.0.0.1")
	route(p.client, "0.0.0.0/0", "10.0.0.1")
	for i, name := range []string{"a", "b"} {
		n := &node{t: t, host: host(name), addr: fmt.Sprintf("10.1.%d.2", i)}
		link(p.router, name, fmt.Sprintf("10.1.%d.1", i), n.host, "up", n.addr)
		route(n.host, "0.0.0.0/0", fmt.Sprintf("10.1.%d.1", i))
		p.nodes[i] = n
	}
	for s := range p.servers {
		h := host(fmt.Sprintf("server%d", s+1))
		p.servers[s] = h
		link(p.router, h.Name, fmt.Sprintf("10.3.%d.1", s), h, "up", fmt.Sprintf("10.3.%d.2", s))
		route(h, "0.0.0.0/0", fmt.Sprintf("10.3.%d.1", s))
		must(t, h.AddAddress("lo", netip.MustParsePrefix(endpointAddr(s)+"/32")))
		must(t, h.AddAddress("lo", netip.MustParsePrefix(vip+"/32")))
		for i, n := range p.nodes {
			link(n.host, h.Name, fmt.Sprintf("10.2.%d%d.1", i+1, s), h, n.host.Name, fmt.Sprintf("10.2.%d%d.2", i+1, s))
			rig.MustRun(t, n.host, "ip", "route", "add", endpointAddr(s)+"/32", "dev", h.Name) // on the link, for dsr
		}
		must(t, h.ServeHTTP(":80"))
	}
	p.startRouter(lab)
	for _, n := range p.nodes {
		n.start()
	}
	await.NoError(t, patience, func() error {
		for _, n := range p.nodes {
			if s, err := p.frr.Neighbor(n.addr); err != nil || s.State != "Established" {
				return fmt.Errorf("%s: %s, %w", n.addr, s.State, err)
			}
		}
		return nil
	})
	return p
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func endpointAddr(server int) string { return fmt.Sprintf("10.9.0.%d", server+1) }

func (p *pair) startRouter(lab *netnstest.Lab) {
	p.t.Helper()
	config := "router bgp 65001\n bgp router-id 10.0.0.1\n no bgp ebgp-requires-policy\n timers bgp 3 9\n"
	for _, n := range p.nodes {
		config += fmt.Sprintf(" neighbor %s remote-as %d\n neighbor %s timers connect 1\n neighbor %s advertisement-interval 0\n", n.addr, nodeASN, n.addr, n.addr)
	}
	config += " address-family ipv4 unicast\n  maximum-paths 8\n exit-address-family\n"
	var err error
	p.frr, err = routers.StartFRR(lab, p.router, config)
	must(p.t, err)
}

func (n *node) start() {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), rig.StartPatience)
	defer cancel()
	var err error
	n.Daemon, err = n.host.StartDaemon(ctx, netnstest.DaemonOptions{Bin: rig.Bin(), Args: []string{"--bgp"}})
	must(n.t, err)
	n.t.Cleanup(func() {
		if n.t.Failed() {
			n.t.Logf("log of %s:\n%s", n.host.Name, n.Log())
		}
	})
	n.loxicmd("set bgp --asn=%d --graceful-restart=60s", nodeASN)
	n.loxicmd("create bgpneighbor %s1 65001", strings.TrimSuffix(n.addr, "2"))
}

// loxicmd runs loxicmd with the given line as its arguments.
func (n *node) loxicmd(line string, args ...any) string {
	n.t.Helper()
	out, err := n.Command(strings.Fields(fmt.Sprintf(line, args...))...)
	if err != nil {
		n.t.Fatal(err)
	}
	return out
}

// nextHops returns the next hops of the router's kernel to a VIP.
func (p *pair) nextHops(vip string) (list []string) {
	to := netip.MustParseAddr(vip).AsSlice()
	routes, err := p.router.Netlink().RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: 254}, netlink.RT_FILTER_TABLE)
	must(p.t, err)
	for _, r := range routes {
		if r.Dst == nil || !r.Dst.IP.Equal(to) {
			continue
		}
		if r.Gw != nil {
			list = append(list, r.Gw.String())
		}
		for _, hop := range r.MultiPath {
			list = append(list, hop.Gw.String())
		}
	}
	return list
}

// awaitNextHops waits until the router has the given number of next hops to a VIP.
func (p *pair) awaitNextHops(vip string, hops int) {
	p.t.Helper()
	began := time.Now()
	for len(p.nextHops(vip)) != hops {
		if time.Since(began) > patience {
			p.t.Fatalf("%s has the next hops %v, want %d", vip, p.nextHops(vip), hops)
		}
		time.Sleep(time.Millisecond)
	}
}

// reportState reports the state of an endpoint, as an agent does.
func (n *node) reportState(address, state string) {
	n.t.Helper()
	n.request(http.MethodPost, "endpointhoststate", fmt.Sprintf(`{"hostName":%q,"state":%q}`, address, state))
}

// request sends a request to a path below /config. It is for measurements: a command takes longer
// on a busy machine.
func (n *node) request(method, path, body string) {
	n.t.Helper()
	req, err := http.NewRequestWithContext(n.t.Context(), method, "http://127.0.0.1:11111/netlox/v1/config/"+path, strings.NewReader(body))
	must(n.t, err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := n.host.HTTPClient(patience).Do(req)
	must(n.t, err)
	defer resp.Body.Close() //nolint:errcheck // of a test
	if answer, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		n.t.Fatalf("got %s %s %s: %s %s, %v, want no error, code 200", method, path, body, resp.Status, answer, err)
	}
}

// setRole sets the role of a node.
func (n *node) setRole(state string) {
	n.t.Helper()
	n.request(http.MethodPost, "cistate", fmt.Sprintf(`{"instance":"default","state":%q,"vip":"0.0.0.0"}`, state))
}

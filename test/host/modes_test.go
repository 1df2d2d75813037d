package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// mode is one kind of service.
type mode struct {
	name  string
	flags string // of its services
	seen  string // whose address an endpoint sees: client, guest or vip
	path  packetPath
}

// packetPath is the path that packets of a mode take.
type packetPath int

const (
	both   packetPath = iota // both directions pass the guest
	direct                   // replies go straight to the client
	out                      // the servers connect to a host behind the client's side
	own                      // the guest's own processes are the clients
)

// modes are all modes. The test compares them with plain routing. The last byte of a VIP depends on
// the mode's index in this list.
var modes = []mode{
	{"default", "", "client", both},
	{"onearm", "--mode=onearm", "guest", both},
	{"fullnat", "--mode=fullnat", "vip", both},
	{"hostonearm", "--mode=hostonearm", "guest", both},
	{"dsr", "--mode=dsr", "client", direct},
	{"ipip", "--mode=dsr --tunnel=ipip", "client", direct},
	{"gue", "--mode=dsr --tunnel=gue", "client", direct},
	{"egress", "--egress", "vip", out},
	{"own", "", "guest", own},
}

func (m mode) tunnel() bool { return strings.Contains(m.flags, "--tunnel") }

// families are the versions of IP.
var families = []int{4, 6}

// pick returns the value for an IP version.
func pick(family int, v4, v6 string) string {
	if family == 6 {
		return v6
	}
	return v4
}

// vip returns the address that clients connect to.
func (m mode) vip(family int) string {
	if m.name == "hostonearm" { // clients connect to an address of the guest
		return pick(family, "10.1.0.254", "fd01::fe")
	}
	place := slices.IndexFunc(modes, func(o mode) bool { return o.name == m.name })
	return fmt.Sprint(pick(family, "20.20.20.", "fd20::"), place+1)
}

// source returns the client's address as the server sees it.
func (m mode) source(family int) string {
	switch m.seen {
	case "client":
		return pick(family, "10.1.0.1", "fd01::1")
	case "guest":
		return pick(family, "10.2.0.254", "fd02::fe")
	}
	return m.vip(family)
}

// The ports of nginx and of iperf3.
const (
	httpPort  = 5001
	iperfPort = 5201
)

// httpPort returns the port that clients connect to. Direct replies cannot translate it.
func (m mode) httpPort() int {
	if m.path == direct {
		return httpPort
	}
	return 8000
}

// createServices creates two services of each mode. They have no probes: an iperf3 that serves one
// test would take a probe for it.
func (n *network) createServices() {
	n.t.Helper()
	var script strings.Builder
	for _, family := range families {
		var endpoints []string
		for i := range 3 {
			endpoints = append(endpoints, bracketed(fmt.Sprint(pick(family, "10.2.0.", "fd02::"), i+1))+":1")
		}
		for _, m := range modes {
			address := m.vip(family)
			if m.name == "hostonearm" {
				address = pick(family, "0.0.0.0", "::")
			}
			for _, ports := range []string{
				fmt.Sprintf("%d:%d", m.httpPort(), httpPort),
				fmt.Sprintf("%d:%[1]d --probetype=none", iperfPort),
			} {
				// an emulated machine may be paused for seconds
				fmt.Fprintf(&script, "loxicmd --timeout=2m create lb %s --tcp=%s %s --endpoints=%s\n",
					address, ports, m.flags, strings.Join(endpoints, ","))
			}
		}
	}
	n.run("%s", script.String())
}

// decapsulate makes the server remove outer headers.
func (n *network) decapsulate() {
	n.t.Helper()
	var vips []string
	for _, m := range modes {
		if m.tunnel() {
			vips = append(vips, m.vip(4), m.vip(6))
		}
	}
	agent, err := n.server.Start(netnstest.Command{Args: []string{n.loxilb, "agent", "--decap", "--interface=back",
		"--vip=" + strings.Join(vips, ","), "--from=198.18.0.0/15,100::/64,10.2.0.254,fd02::fe"}})
	if err != nil {
		n.t.Fatal(err)
	}
	labtest.Eventually(n.t, rig.Patience, func(context.Context) error {
		if !strings.Contains(agent.Output(), "decapsulating packets") {
			return errors.New(agent.Output())
		}
		return nil
	})
}

// transfer is one kind of transfer, which can be repeated.
type transfer struct {
	what string
	make func() error
}

// routedTransfers go through the guest without a balancer.
func (n *network) routedTransfers(family int) []transfer {
	server := pick(family, "10.2.0.1", "fd02::1")
	return n.transfers(n.client, n.server, server, httpPort, pick(family, "10.1.0.1", "fd01::1"))
}

// balancedTransfers go through a service.
func (n *network) balancedTransfers(m mode, family int) []transfer {
	port := m.httpPort()
	switch m.path {
	case own:
		return n.ownTransfers(m.vip(family), port, m.source(family))
	case out:
		return n.transfers(n.server, n.client, pick(family, "30.30.30.1", "fd30::1"), httpPort, m.source(family))
	}
	list := n.transfers(n.client, n.server, m.vip(family), port, m.source(family))
	if m.path == direct {
		n.redirect(family, list)
	}
	return list
}

// transfers returns all transfers between two hosts. The server sees this source.
func (n *network) transfers(from, to *netnstest.Host, address string, port int, source string) []transfer {
	url := fmt.Sprintf("http://%s:%d", bracketed(address), port)
	return []transfer{
		{"the source", func() error {
			return sees(url, source, func(args ...string) (string, error) { return from.Run(args...) })
		}},
		{"downloads", func() error { return n.download(from, url) }},
		{"an upload", func() error { return n.upload(from, to, url) }},
		{"new requests", func() error { return n.request(from, url) }},
		{"iperf3", func() error { return n.iperf(from, to, address) }},
	}
}

// redirect sends replies over the direct link during transfers. The server's route has an MTU that
// leaves room for outer headers.
func (n *network) redirect(family int, transfers []transfer) {
	route := strings.Fields(pick(family, "10.1.0.0/24 via 10.9.0.1", "fd01::/64 via fd09::1"))
	route = append(route, "advmss", fmt.Sprint(n.scenario.mtu-120))
	for i, t := range transfers {
		transfers[i].make = func() error {
			_, err := n.server.Run(append([]string{"ip", "route", "replace"}, route...)...)
			if err == nil {
				err = t.make()
			}
			_, back := n.server.Run(append([]string{"ip", "route", "del"}, route...)...)
			return errors.Join(err, back)
		}
	}
}

// bracketed returns an address in the form of URLs and endpoints.
func bracketed(address string) string {
	if strings.Contains(address, ":") {
		return "[" + address + "]"
	}
	return address
}

// sortedKeys returns the sorted keys of a map.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

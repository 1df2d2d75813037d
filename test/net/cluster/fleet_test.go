package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"loxilb/test/await"
	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
	"loxilb/test/netnstest/routers"
)

const (
	patience = 30 * time.Second
	// fleetSize is the number of nodes. There are as many endpoints.
	fleetSize = 3
)

// fleet is a group of nodes that exchange connections. They share a network with endpoints and an
// FRR router, which spreads connections over nodes by ECMP with a hash of addresses and ports:
//
//	client - router - bridge - a, b, c, endpoint1, endpoint2, endpoint3
//
// Nodes announce VIPs by BGP with BFD. Endpoints reply to the router. It forwards replies of mode
// dsr to the client, replies to source addresses to the node that owns them, and replies of mode
// default to the node that has the VIP of this mode.
type fleet struct {
	t              *testing.T
	client, router *netnstest.Host
	nodes          [fleetSize]*member
	endpoints      [fleetSize]*netnstest.Host
	frr            *routers.FRR
	secondRouter   *netnstest.Host // nil: the fleet has one router
	etcd           etcd
	keyPrefix      string        // prefix of the paths of key files
	certificates   *certificates // nil: nodes have a key
	options
}

// options of a fleet.
type options struct {
	bfd             time.Duration // interval of BFD
	bin             string        // programs of the nodes
	twoRouters      bool
	useEtcd         bool // etcd stores the services: those of mode dsr
	useCertificates bool // nodes have certificates instead of a key
}

// member is a node of a fleet. Its number, from 1, is part of its addresses.
type member struct {
	*netnstest.Daemon
	fleet  *fleet
	host   *netnstest.Host
	number int
	opts   []string // further flags
}

// address returns the address of a host in a network. Networks 0 and 5 have clients, 2 nodes, and 9
// endpoints.
func address(is6 bool, network, number int) string {
	if is6 {
		return fmt.Sprintf("fd%02d::%x", network, number)
	}
	return fmt.Sprintf("10.%d.0.%d", network, number)
}

const routerNumber = 254

// vip returns the VIP of a mode.
func vip(is6 bool, mode string) string {
	number := map[string]int{"onearm": 1, "fullnat": 2, "default": 3, "dsr": 4}[mode]
	if is6 {
		return fmt.Sprintf("fd20::%d", number)
	}
	return fmt.Sprintf("20.20.20.%d", number)
}

// sourceAddress returns a source address that a node uses towards endpoints.
func sourceAddress(is6 bool, node, number int) string {
	if is6 {
		return fmt.Sprintf("fd2%d::%d", node, number)
	}
	return fmt.Sprintf("10.20.%d.%d", node, number)
}

// sourcePrefix returns the prefix of a node's source addresses.
func sourcePrefix(is6 bool, node int) string {
	if is6 {
		return fmt.Sprintf("fd2%d::/64", node)
	}
	return fmt.Sprintf("10.20.%d.0/24", node)
}

// newFleet starts all hosts and waits until the router has the nodes' routes.
func newFleet(t *testing.T, o options) *fleet {
	t.Helper()
	lab := labtest.New(t)
	f := &fleet{t: t, options: o, keyPrefix: filepath.Join(t.TempDir(), "key")}
	f.build(lab)
	for _, m := range f.nodes {
		m.writeKeys(clusterKeys[0])
	}
	if o.useCertificates {
		f.certificates = f.newCertificates()
	}
	f.serve()
	if o.useEtcd {
		f.addEtcd(lab)
	}
	var err error
	f.frr, err = routers.StartFRR(lab, f.router, f.routerConfig(routerNumber))
	must(t, err)
	if o.twoRouters {
		f.addRouter(lab)
	}
	for _, m := range f.nodes {
		m.create()
	}
	f.awaitNextHops(fleetSize)
	f.awaitBFD()
	return f
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// enableForwarding configures a host as a router.
func (f *fleet) enableForwarding(h *netnstest.Host) {
	f.t.Helper()
	for _, s := range [][2]string{
		{"net/ipv4/ip_forward", "1"}, {"net/ipv6/conf/all/forwarding", "1"},
		{"net/ipv4/conf/all/send_redirects", "0"}, {"net/ipv4/conf/default/send_redirects", "0"},
	} {
		must(f.t, h.Sysctl(s[0], s[1]))
	}
	f.hashHeaders(h)
}

// hashHeaders makes a host select among equal routes by addresses, protocol and ports, as routers
// do. Policy 1 would use the packet's own hash. A packet that crosses namespaces keeps the hash of
// its socket, and Linux changes that hash with each retransmission of a SYN.
func (f *fleet) hashHeaders(h *netnstest.Host) {
	f.t.Helper()
	const custom, fields = "3", "0x37" // all but IPv6's flow label, which also changes
	for _, family := range []string{"ipv4", "ipv6"} {
		must(f.t, h.Sysctl("net/"+family+"/fib_multipath_hash_fields", fields))
		must(f.t, h.Sysctl("net/"+family+"/fib_multipath_hash_policy", custom))
	}
}

func (f *fleet) build(lab *netnstest.Lab) {
	f.t.Helper()
	host := func(name string) *netnstest.Host {
		h, err := lab.Host(name)
		must(f.t, err)
		return h
	}
	f.client, f.router = host("client"), host("router")
	f.enableForwarding(f.router)
	must(f.t, f.client.Sysctl("net/ipv4/ip_local_port_range", "2000 65000"))
	must(f.t, f.client.Sysctl("net/ipv4/tcp_tw_reuse", "1"))
	must(f.t, lab.Link(f.linkEnd(f.client, "eth0", 0, 2), f.linkEnd(f.router, "client", 0, 1), 0))
	f.defaultRoutes(f.client, address(false, 0, 1), address(true, 0, 1))
	rig.MustRun(f.t, f.router, "ip", "link", "add", "br0", "type", "bridge", "mcast_snooping", "0")
	for _, network := range []int{2, 9} {
		for _, is6 := range []bool{false, true} {
			must(f.t, f.router.AddAddress("br0", prefix(is6, network, routerNumber)))
		}
	}
	must(f.t, f.router.Up("br0"))
	for i := range fleetSize {
		f.nodes[i] = &member{fleet: f, host: host(string(rune('a' + i))), number: i + 1}
		f.attach(lab, f.nodes[i].host, 2, i+1)
		rig.MustRun(f.t, f.nodes[i].host, "ip", "route", "add", "10.9.0.0/24", "dev", "eth0")
		rig.MustRun(f.t, f.nodes[i].host, "ip", "-6", "route", "add", "fd09::/64", "dev", "eth0")
		f.endpoints[i] = host(fmt.Sprintf("endpoint%d", i+1))
		f.attach(lab, f.endpoints[i], 9, i+1)
		for _, is6 := range []bool{false, true} {
			must(f.t, f.endpoints[i].AddAddress("lo", hostPrefix(vip(is6, "dsr"))))
		}
	}
	f.routeDefault()
}

// The client has several addresses in each network. A port is unusable for a minute after its
// connection ends. With one address, 500 connections per second would use up half of the ports in
// that time, and the kernel would try tens of thousands of ports for each further connection.
const firstClient, clientAddresses = 2, 4

// defaultModeNetwork is the network of clients of mode default. Nodes also announce it, so the
// router forwards replies to the node that has the VIP of this mode.
const defaultModeNetwork = 5

func (f *fleet) routeDefault() {
	f.t.Helper()
	for _, is6 := range []bool{false, true} {
		family := map[bool]string{false: "-4", true: "-6"}[is6]
		clients := prefix(is6, defaultModeNetwork, firstClient)
		for n := range clientAddresses {
			must(f.t, f.client.AddAddress("eth0", prefix(is6, 0, firstClient+n)))
			must(f.t, f.client.AddAddress("eth0", prefix(is6, defaultModeNetwork, firstClient+n)))
		}
		rig.MustRun(f.t, f.router, "ip", family, "route", "add", clients.Masked().String(), "dev", "client", "table", "100")
		rig.MustRun(f.t, f.router, "ip", family, "rule", "add", "from", vip(is6, "default"), "lookup", "100")
	}
}

func (f *fleet) linkEnd(h *netnstest.Host, name string, network, number int) netnstest.End {
	return netnstest.End{Host: h, Interface: name, Addresses: []netip.Prefix{prefix(false, network, number), prefix(true, network, number)}}
}

func prefix(is6 bool, network, number int) netip.Prefix {
	if is6 {
		return netip.PrefixFrom(netip.MustParseAddr(address(true, network, number)), 64)
	}
	return netip.PrefixFrom(netip.MustParseAddr(address(false, network, number)), 24)
}

func hostPrefix(a string) netip.Prefix {
	addr := netip.MustParseAddr(a)
	return netip.PrefixFrom(addr, addr.BitLen())
}

// attach connects a host to the bridge, with the router as its default route.
func (f *fleet) attach(lab *netnstest.Lab, h *netnstest.Host, network, number int) {
	f.t.Helper()
	must(f.t, lab.Link(f.linkEnd(h, "eth0", network, number), netnstest.End{Host: f.router, Interface: h.Name}, 0))
	rig.MustRun(f.t, f.router, "ip", "link", "set", "dev", h.Name, "master", "br0")
	f.defaultRoutes(h, address(false, network, routerNumber), address(true, network, routerNumber))
}

func (f *fleet) defaultRoutes(h *netnstest.Host, via4, via6 string) {
	f.t.Helper()
	must(f.t, h.AddRoute(netip.MustParsePrefix("0.0.0.0/0"), netip.MustParseAddr(via4)))
	must(f.t, h.AddRoute(netip.MustParsePrefix("::/0"), netip.MustParseAddr(via6)))
}

// routerConfig returns the FRR configuration of a router. Two routers have a session with each
// other.
func (f *fleet) routerConfig(number int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "bfd\n profile fast\n  transmit-interval %[1]d\n  receive-interval %[1]d\n  detect-multiplier 3\n", f.bfd.Milliseconds())
	fmt.Fprintf(&b, "router bgp 65001\n bgp router-id 10.0.0.%d\n no bgp ebgp-requires-policy\n no bgp default ipv4-unicast\n timers bgp 3 9\n", routerNumber+1-number)
	for _, is6 := range []bool{false, true} {
		for i := range fleetSize {
			n := address(is6, 2, i+1)
			fmt.Fprintf(&b, " neighbor %[1]s remote-as 65010\n neighbor %[1]s timers connect 1\n neighbor %[1]s advertisement-interval 0\n neighbor %[1]s bfd profile fast\n", n)
		}
		if f.twoRouters {
			fmt.Fprintf(&b, " neighbor %[1]s remote-as 65001\n neighbor %[1]s timers connect 1\n neighbor %[1]s advertisement-interval 0\n", address(is6, 2, otherRouter(number)))
		}
	}
	for _, is6 := range []bool{false, true} {
		family := map[bool]string{false: "ipv4", true: "ipv6"}[is6]
		fmt.Fprintf(&b, " address-family %s unicast\n  maximum-paths 8\n", family)
		for i := range fleetSize {
			fmt.Fprintf(&b, "  neighbor %s activate\n", address(is6, 2, i+1))
		}
		if f.twoRouters {
			fmt.Fprintf(&b, "  neighbor %[1]s activate\n  neighbor %[1]s next-hop-self\n", address(is6, 2, otherRouter(number)))
		}
		b.WriteString(" exit-address-family\n")
	}
	return b.String()
}

// create starts a node for the first time, and creates its services.
func (m *member) create() {
	m.fleet.t.Helper()
	ctx, cancel := context.WithTimeout(m.fleet.t.Context(), rig.StartPatience)
	defer cancel()
	var err error
	m.Daemon, err = m.host.StartDaemon(ctx, netnstest.DaemonOptions{Bin: m.fleet.bin, Args: m.args()})
	must(m.fleet.t, err)
	m.fleet.t.Cleanup(func() {
		if m.fleet.t.Failed() {
			m.fleet.t.Logf("log of %s:\n%s", m.host.Name, m.Log())
		}
	})
	lines := m.neighbors() + m.services()
	if m.fleet.useEtcd {
		lines = m.neighbors() + m.sharedServices()
	}
	for line := range strings.Lines(strings.TrimSpace(lines)) {
		m.loxicmd(strings.TrimSpace(line))
	}
}

func (m *member) args() []string {
	opts := m.opts
	if m.fleet.useEtcd {
		opts = append([]string{"--store=" + storeURL()}, opts...)
	}
	credentials := []string{"--cluster-key=" + m.keyFile()}
	if m.fleet.certificates != nil {
		credentials = m.fleet.certificates.args(m)
	}
	return slices.Concat([]string{
		"--bgp", "--ct-max=1000000", fmt.Sprintf("--cluster=%s,%s,%s", address(false, 2, 1), address(false, 2, 2), address(false, 2, 3)),
		"--cluster-node=" + m.host.Name, fmt.Sprintf("--self=%d", m.number),
	}, credentials, opts)
}

// neighbors returns the commands that configure BGP.
func (m *member) neighbors() string {
	var b strings.Builder
	fmt.Fprintf(&b, "set bgp --asn=65010 --router-id=%s\n", address(false, 2, m.number))
	for _, is6 := range []bool{false, true} {
		for _, router := range m.fleet.routerNumbers() {
			fmt.Fprintf(&b, "create bgpneighbor %s 65001 --bfd=%s --connect-retry=1s\n", address(is6, 2, router), m.fleet.bfd)
		}
	}
	return b.String()
}

// endpointList returns all endpoints with weight 1, as --endpoints takes them.
func endpointList(is6 bool) string {
	var endpoints []string
	for i := range fleetSize {
		endpoints = append(endpoints, net.JoinHostPort(address(is6, 9, i+1), "1"))
	}
	return strings.Join(endpoints, ",")
}

// services returns the commands that create the services of a node.
func (m *member) services() string {
	var b strings.Builder
	for _, is6 := range []bool{false, true} {
		list := endpointList(is6)
		common := " --tcp=80:80 --udp=53:53 --probetype=none --bgp --endpoints=" + list
		fmt.Fprintf(&b, "create lb %s --mode=onearm --snat=%s%s\n", vip(is6, "onearm"), sourceAddress(is6, m.number, 1), common)
		fmt.Fprintf(&b, "create lb %s --mode=fullnat --snat=%s%s\n", vip(is6, "fullnat"), sourceAddress(is6, m.number, 2), common)
		fmt.Fprintf(&b, "create lb %s --mode=default --select=hash --inatimeout=600 --bgp-med=%d%s\n", vip(is6, "default"), m.number, common)
		fmt.Fprintf(&b, "create lb %s --mode=dsr --select=hash%s\n", vip(is6, "dsr"), common)
		fmt.Fprintf(&b, "create lb %s --icmp --bgp --bgp-announce=always --bgp-aggregate=%s --bgp-med=%d --endpoints=%s\n",
			address(is6, defaultModeNetwork, 99), prefix(is6, defaultModeNetwork, 0).Masked(), m.number, list)
		for owner := 1; owner <= fleetSize; owner++ { // the node that owns the source addresses
			med := 10 + m.number
			if owner == m.number {
				med = 1
			}
			fmt.Fprintf(&b, "create lb %s --icmp --bgp --bgp-announce=always --bgp-aggregate=%s --bgp-med=%d --endpoints=%s\n",
				sourceAddress(is6, owner, 99), sourcePrefix(is6, owner), med, list)
		}
	}
	return b.String()
}

// loxicmd runs a loxicmd command, given as words separated by spaces.
func (m *member) loxicmd(line string) string {
	m.fleet.t.Helper()
	out, err := m.Command(strings.Fields(line)...)
	if err != nil {
		m.fleet.t.Fatalf("%s: %s: %v\n%s", m.host.Name, line, err, out)
	}
	return out
}

// restart starts a node again after Stop or Kill.
func (m *member) restart() {
	m.fleet.t.Helper()
	ctx, cancel := context.WithTimeout(m.fleet.t.Context(), rig.StartPatience)
	defer cancel()
	m.SetArgs(m.args()...)
	must(m.fleet.t, m.Start(ctx))
}

// clusterStatus is the answer to GET status/cluster.
type clusterStatus struct {
	Joined bool
	Held   string
	Peers  []clusterPeer
}

type clusterPeer struct {
	Node, State, Reason string
	Lag                 float64
	Queued              int
	Sent, Received      uint64
	Parked, Dropped     uint64
	Results             []struct {
		Result  string
		Records uint64
	}
}

// result returns the number of records from the peer that had the given result.
func (p *clusterPeer) result(name string) uint64 {
	for _, r := range p.Results {
		if r.Result == name {
			return r.Records
		}
	}
	return 0
}

func (m *member) status() (out clusterStatus, err error) {
	text, err := m.Command("get", "cluster", "-o", "json")
	if err == nil {
		_, answer, _ := strings.Cut(text, "{") // after warnings
		err = json.Unmarshal([]byte("{"+answer), &out)
	}
	if err != nil {
		return out, fmt.Errorf("%s: %w: %s", m.host.Name, err, text)
	}
	return out, nil
}

// awaitPeers waits until each node has sent all of its connections to all others.
func (f *fleet) awaitPeers() {
	f.t.Helper()
	await.NoError(f.t, patience, func() error {
		for _, m := range f.nodes {
			s, err := m.status()
			if err != nil {
				return err
			}
			for _, p := range s.Peers {
				if p.State != "up" || p.Lag > 1 {
					return fmt.Errorf(`%s: got %+v, want p.State == "up", p.Lag <= 1`, m.host.Name, p)
				}
			}
			if len(s.Peers) != fleetSize-1 {
				return fmt.Errorf("%s has %d peers", m.host.Name, len(s.Peers))
			}
		}
		return nil
	})
}

// setCut drops all frames from and to a node, or forwards them again. The links stay up.
func (m *member) setCut(cut bool) {
	m.fleet.t.Helper()
	table := "cut-" + m.host.Name
	if !cut {
		rig.MustRun(m.fleet.t, m.fleet.router, "nft", "delete", "table", "netdev", table)
		return
	}
	rules := fmt.Sprintf("table netdev %[1]s { chain in { type filter hook ingress device %[2]s priority 0; policy drop; }; chain out { type filter "+
		"hook egress device %[2]s priority 0; policy drop; }; }",
		table, m.host.Name)
	rig.MustRun(m.fleet.t, m.fleet.router, "nft", rules)
}

// setPartition drops all packets between nodes, or forwards them again.
func (f *fleet) setPartition(cut bool) {
	f.t.Helper()
	if !cut {
		rig.MustRun(f.t, f.router, "nft", "delete", "table", "bridge", "partition")
		return
	}
	rig.MustRun(f.t, f.router, "nft", "table bridge partition { chain forward { type filter hook forward priority 0; ip saddr 10.2.0.1-10.2.0.3 ip daddr 10.2.0.1-10.2.0.3 drop; }; }")
}

func (m *member) pause()   { m.Signal(syscall.SIGSTOP) }
func (m *member) unpause() { m.Signal(syscall.SIGCONT) }

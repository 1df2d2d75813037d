package network_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// cluster is a network of three hosts. Two of them are nodes, each with two containers on a bridge.
// The first node is the load balancer, and VIPs are routed to it.
//
//	c11 10.1.1.11 ─┐                                                  ┌─ 10.1.2.11 c21
//	               br0 .254  node1 ── 192.168.0.0/24 ── node2  .254 br0
//	c12 10.1.1.12 ─┘         .1             │           .2            └─ 10.1.2.12 c22
//	                                        .3 other
//
// IPv6 has the same layout: 2001:db8:1:1::11, 2001:db8:1:2::fe, 2001:db8:c::3.
type cluster struct {
	*netnstest.Lab
	*netnstest.Daemon
	t     *testing.T
	hosts map[string]*netnstest.Host
	// Each container has a routed veth instead of a port of its node's bridge, as with the ptp
	// plugin and Calico.
	routed bool
}

// clusterHosts are the names of the cluster's hosts.
var clusterHosts = []string{"c11", "c12", "c21", "c22", "node1", "node2", "other"} //nolint:gochecknoglobals // a constant

// clusterAddress returns a host's address, in its own network.
func clusterAddress(name string, is6 bool) string {
	at := map[string][2]string{
		"c11": {"10.1.1.11", "2001:db8:1:1::11"}, "c12": {"10.1.1.12", "2001:db8:1:1::12"},
		"c21": {"10.1.2.11", "2001:db8:1:2::11"}, "c22": {"10.1.2.12", "2001:db8:1:2::12"},
		"node1": {"192.168.0.1", "2001:db8:c::1"}, "node2": {"192.168.0.2", "2001:db8:c::2"}, "other": {"192.168.0.3", "2001:db8:c::3"},
	}[name]
	if is6 {
		return at[1]
	}
	return at[0]
}

// newCluster builds the cluster and starts loxilb on node1. Every host has a server on port 80 that
// answers with its name and the client's address.
func newCluster(t *testing.T, args ...string) *cluster {
	t.Helper()
	c := &cluster{Lab: labtest.New(t), t: t, hosts: map[string]*netnstest.Host{}}
	c.build()
	c.start(args...)
	return c
}

// newRoutedCluster is newCluster with routed containers.
func newRoutedCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{Lab: labtest.New(t), t: t, hosts: map[string]*netnstest.Host{}, routed: true}
	c.build()
	c.start()
	return c
}

func (c *cluster) build() {
	t := c.t
	t.Helper()
	for _, name := range append([]string{"lan"}, clusterHosts...) {
		h, err := c.Host(name)
		if err != nil {
			t.Fatal(err)
		}
		c.hosts[name] = h
	}
	c.bridge("lan")
	for _, name := range []string{"node1", "node2", "other"} {
		c.plug(name, "lan", 24)
	}
	for k, node := range []string{"node1", "node2"} {
		h := c.hosts[node]
		if !c.routed {
			c.bridge(node, fmt.Sprintf("10.1.%d.254/24", k+1), fmt.Sprintf("2001:db8:1:%d::fe/64", k+1))
		}
		for _, s := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
			if err := h.Sysctl(s, "1"); err != nil {
				t.Fatal(err)
			}
		}
		for n := range 2 {
			name := fmt.Sprintf("c%d%d", k+1, n+1)
			if c.routed {
				c.wire(name, node, fmt.Sprintf("10.1.%d.254", k+1), fmt.Sprintf("2001:db8:1:%d::fe", k+1))
				continue
			}
			c.plug(name, node, 24)
			c.route(name, "0.0.0.0/0", fmt.Sprintf("10.1.%d.254", k+1))
			c.route(name, "::/0", fmt.Sprintf("2001:db8:1:%d::fe", k+1))
		}
	}
	for _, six := range []bool{false, true} {
		for from, to := range map[string]string{"node1": "2", "node2": "1", "other": "12"} {
			for _, k := range to {
				c.route(from, [2]string{"10.1.%c.0/24", "2001:db8:1:%c::/64"}[index(six)], clusterAddress("node"+string(k), six), k)
			}
			if from != "node1" {
				c.route(from, [2]string{"20.20.20.0/24", "2001:db8:20::/64"}[index(six)], clusterAddress("node1", six))
			}
		}
	}
}

func index(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (c *cluster) start(args ...string) {
	c.t.Helper()
	for _, name := range clusterHosts {
		if err := c.hosts[name].ServeHTTPWith(":80", rig.NameHandler(name)); err != nil {
			c.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), rig.StartPatience)
	defer cancel()
	var err error
	if c.Daemon, err = c.hosts["node1"].StartDaemon(ctx, netnstest.DaemonOptions{Bin: rig.Bin(), Args: args}); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if c.t.Failed() {
			c.t.Logf("loxilb's log:\n%s", c.Log())
		}
	})
}

// bridge creates a host's bridge br0.
func (c *cluster) bridge(host string, addresses ...string) {
	c.t.Helper()
	rig.MustRun(c.t, c.hosts[host], "ip", "link", "add", "br0", "type", "bridge")
	rig.MustRun(c.t, c.hosts[host], "ip", "link", "set", "br0", "up")
	for _, a := range addresses {
		rig.MustRun(c.t, c.hosts[host], "ip", "address", "add", a, "dev", "br0", "nodad")
	}
}

// plug connects a host to the bridge of another host. The port has the host's name. It is in
// hairpin mode, as with container runtimes: it sends frames back to the port from which they came.
func (c *cluster) plug(name, into string, bits int) {
	c.t.Helper()
	addresses := []netip.Prefix{rig.Prefix(fmt.Sprintf("%s/%d", clusterAddress(name, false), bits)), rig.Prefix(clusterAddress(name, true) + "/64")}
	err := c.Link(netnstest.End{Host: c.hosts[name], Interface: "eth0", Addresses: addresses}, netnstest.End{Host: c.hosts[into], Interface: name}, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	rig.MustRun(c.t, c.hosts[into], "ip", "link", "set", name, "master", "br0")
	rig.MustRun(c.t, c.hosts[into], "ip", "link", "set", name, "type", "bridge_slave", "hairpin", "on")
}

// wire connects a container to its node by a routed veth. The node's end of each veth has the
// gateways' addresses.
func (c *cluster) wire(name, node string, gateways ...string) {
	c.t.Helper()
	if err := c.Link(netnstest.End{Host: c.hosts[name], Interface: "eth0"}, netnstest.End{Host: c.hosts[node], Interface: name}, 0); err != nil {
		c.t.Fatal(err)
	}
	for i, gateway := range gateways {
		address := netip.MustParseAddr(clusterAddress(name, i == 1))
		bits := fmt.Sprintf("/%d", address.BitLen())
		for _, line := range []string{
			"ip address add " + gateway + bits + " dev " + name + " nodad",
			"ip route add " + address.String() + bits + " dev " + name,
		} {
			rig.MustRun(c.t, c.hosts[node], strings.Fields(line)...)
		}
		for _, line := range []string{
			"ip address add " + address.String() + bits + " dev eth0 nodad",
			"ip route add " + gateway + bits + " dev eth0",
			"ip route add default via " + gateway,
		} {
			rig.MustRun(c.t, c.hosts[name], strings.Fields(strings.Replace(line, "ip ", [2]string{"ip ", "ip -6 "}[i], 1))...)
		}
	}
}

func (c *cluster) route(host, to, via string, args ...any) {
	c.t.Helper()
	if len(args) > 0 {
		to = fmt.Sprintf(to, args...)
	}
	if err := c.hosts[host].AddRoute(rig.Prefix(to), netip.MustParseAddr(via)); err != nil {
		c.t.Fatal(err)
	}
}

// balance creates a service on port 80 with one endpoint.
func (c *cluster) balance(vip, mode string, port int, endpoint string, flags ...string) {
	c.t.Helper()
	args := append([]string{"create", "lb", vip, fmt.Sprintf("--tcp=80:%d", port), "--mode=" + mode, "--endpoints=" + endpoint}, flags...)
	if _, err := c.Command(args...); err != nil {
		c.t.Fatal(err)
	}
}

// ask sends a request from a host to a VIP, and returns the server's name and the source address
// that the server sees.
func (c *cluster) ask(host, vip string) (who, sees string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 3*time.Second)
	defer cancel()
	answer, err := c.hosts[host].Get(ctx, rig.Join(vip, 80))
	if err != nil {
		return err.Error(), ""
	}
	who, sees, _ = strings.Cut(answer, " sees ")
	return who, sees
}

// wantedSource is expectedSource for this cluster: replies of a routed container pass its node.
func (c *cluster) wantedSource(mode, client, endpoint, vip string, is6 bool) string {
	if c.routed && mode != "onearm" && mode != "fullnat" && client != endpoint && client[:2] == "c1" && endpoint[:2] == "c1" {
		return clusterAddress(client, is6)
	}
	return expectedSource(mode, client, endpoint, vip, is6)
}

// expectedSource returns the source address that an endpoint sees, or "" for any: the kernel
// chooses the address of a socket of the load balancer's own host.
func expectedSource(mode, client, endpoint, vip string, is6 bool) string {
	ours := [2]string{"192.168.0.1", "2001:db8:c::1"}[index(is6)]
	if endpoint == "c11" || endpoint == "c12" {
		ours = [2]string{"10.1.1.254", "2001:db8:1:1::fe"}[index(is6)]
	}
	onLAN := func(host string) bool { return host == "node2" || host == "other" }
	inNode := func(host string) string { return host[:2] }
	switch {
	case client == "node1":
		return ""
	case endpoint == "node1": // the load balancer's own host
		return clusterAddress(client, is6)
	case mode == "fullnat":
		return vip
	case mode == "onearm", mode == "auto" && endpoint[:2] != "c1":
		return ours
	case client == endpoint:
		return vip
	case inNode(client) == inNode(endpoint), onLAN(client) && (onLAN(endpoint) || inNode(endpoint) == "c2"):
		return ours
	}
	return clusterAddress(client, is6)
}

// TestBridges checks that every host of the cluster reaches every host, including itself, in each
// mode that translates, over both IP versions. An endpoint sees the client's address, or the load
// balancer's if its reply would otherwise bypass the load balancer: the endpoint is a container on
// the client's bridge, a neighbor, or has the same router. In mode auto, endpoints on the load
// balancer's node see the client's address, and all others the load balancer's.
func TestBridges(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.wantAllCells()
	c.wantModeAuto()
}

// wantModeAuto checks that mode auto follows changes of links. While the containers' bridge has a
// port that may lead to other hosts, new connections get the load balancer's source address, and
// existing ones continue. Commands show the source address.
func (c *cluster) wantModeAuto() {
	t := c.t
	t.Helper()
	const vip = "20.20.20.50"
	c.balance(vip, "auto", 80, "10.1.1.11:1,10.1.2.11:1", "--select=priority")
	client := c.hosts["other"]
	conn, err := client.DialContext(t.Context(), "tcp", "20.20.20.40:80")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	answers := bufio.NewReader(conn)
	wantKept := func() {
		t.Helper()
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := conn.Write([]byte("GET / HTTP/1.1\r\nHost: vip\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		r, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal("the connection is not kept:", err)
		}
		body, err := io.ReadAll(r.Body)
		if got := string(body); err != nil || got != "c11 sees 192.168.0.3\n" {
			t.Errorf("the connection's answer: %q, %v", got, err)
		}
	}
	sources := func(local, why string) {
		t.Helper()
		labtest.Eventually(t, 10*time.Second, func(context.Context) error {
			out, err := c.Command("describe", "lb", vip+":80/tcp")
			if err != nil {
				return err
			}
			for _, want := range []string{`\| 10\.1\.1\.11 .*\| +` + local + ` +\|`, `\| 10\.1\.2\.11 .*\| +192\.168\.0\.1 +\|`} {
				if !regexp.MustCompile(want).MatchString(out) {
					return fmt.Errorf("no line %s:\n%s", want, out)
				}
			}
			return nil
		})
		out, err := c.Command("get", "lb", "-o", "wide")
		if err != nil || !regexp.MustCompile(`\| 10\.1\.1\.11 .*\| +`+local+` +\|`).MatchString(out) {
			t.Errorf("get lb -o wide does not name the source %s: %v\n%s", local, err, out)
		}
		out, err = c.Command("explain", "--from", "192.168.0.3", "--to", "20.20.20.40:80")
		if err != nil || !strings.Contains(out, why) {
			t.Errorf("explain does not print %q: %v\n%s", why, err, out)
		}
	}
	wantKept()
	sources("client", "it is on this node, so its answers pass it")
	node := c.hosts["node1"]
	rig.MustRun(t, node, "ip", "link", "add", "elsewhere", "type", "veth", "peer", "name", "outside")
	rig.MustRun(t, node, "ip", "link", "set", "elsewhere", "master", "br0")
	sources(`10\.1\.1\.254`, "because it is not behind a veth or bridge of this node")
	if who, sees := c.ask("other", "20.20.20.40"); who != "c11" || sees != "10.1.1.254" {
		t.Errorf("%s answers, sees %s; want c11 sees 10.1.1.254", who, sees)
	}
	wantKept()
	rig.MustRun(t, node, "ip", "link", "del", "elsewhere")
	sources("client", "it is on this node, so its answers pass it")
	wantKept()
}

// TestRoutedContainers is TestBridges with containers on routed veths.
func TestRoutedContainers(t *testing.T) {
	t.Parallel()
	newRoutedCluster(t).wantAllCells()
}

// wantAllCells checks every combination of mode, client and endpoint.
func (c *cluster) wantAllCells() {
	t := c.t
	t.Helper()
	for n, mode := range []string{"default", "onearm", "fullnat", "auto"} {
		for i, endpoint := range clusterHosts {
			for _, is6 := range []bool{false, true} {
				vip := fmt.Sprintf([2]string{"20.20.20.%d%d", "2001:db8:20::%d%d"}[index(is6)], n+1, i)
				at := netip.AddrPortFrom(netip.MustParseAddr(clusterAddress(endpoint, is6)), 1).String() // with a weight
				c.balance(vip, mode, 80, at)
				for _, client := range clusterHosts {
					if mode == "default" && repliesBypassBalancer(client, endpoint) {
						continue
					}
					who, sees := c.ask(client, vip)
					want := c.wantedSource(mode, client, endpoint, vip, is6)
					if who != endpoint || want != "" && sees != want {
						t.Errorf("mode %s, from %s to %s: %s answers, sees %s; want %s sees %s", mode, client, endpoint, who, sees, endpoint, want)
					}
				}
			}
		}
	}
}

// TestBridgesDirect checks that, with direct return, a container sees the address of a client on
// its bridge. The status of a service reports an endpoint behind the other node as unreachable.
func TestBridgesDirect(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	rig.MustRun(t, c.hosts["c12"], "ip", "address", "add", "20.20.20.8/32", "dev", "lo")
	c.balance("20.20.20.8", "dsr", 80, "10.1.1.12:1")
	if who, sees := c.ask("c11", "20.20.20.8"); who != "c12" || sees != "10.1.1.11" {
		t.Errorf("%s answers, sees %s; want c12 sees 10.1.1.11", who, sees)
	}
	c.balance("20.20.20.9", "dsr", 80, "10.1.2.11:1")
	out, err := c.Command("describe", "lb", "20.20.20.9:80/tcp")
	if err != nil || !strings.Contains(out, "10.1.2.11 of service 20.20.20.9:80/tcp is behind a router") {
		t.Errorf("the status does not report the unreachable endpoint: %v\n%s", err, out)
	}
}

// repliesBypassBalancer reports whether the client's router is the endpoint or a neighbor of it: in
// this cluster, its replies do not pass the load balancer.
func repliesBypassBalancer(client, endpoint string) bool {
	return slices.Contains([]string{"c21", "c22"}, client) && slices.Contains([]string{"node2", "other"}, endpoint)
}

// kubeProxy has rules like those of kube-proxy for a service with a node port. They use the four
// containers in turn. The source address is the node's for clients that are not containers of this
// node, and for a container that reaches itself.
const kubeProxy = `table ip kubeproxy {
	chain c11 {
		ip saddr 10.1.1.11 meta mark set 0x4000
		meta l4proto tcp dnat to 10.1.1.11:80
	}
	chain c12 {
		ip saddr 10.1.1.12 meta mark set 0x4000
		meta l4proto tcp dnat to 10.1.1.12:80
	}
	chain c21 {
		ip saddr 10.1.2.11 meta mark set 0x4000
		meta l4proto tcp dnat to 10.1.2.11:80
	}
	chain c22 {
		ip saddr 10.1.2.12 meta mark set 0x4000
		meta l4proto tcp dnat to 10.1.2.12:80
	}
	chain nodeport {
		ip saddr != 10.1.%d.0/24 meta mark set 0x4000
		numgen inc mod 4 vmap { 0: goto c11, 1: goto c12, 2: goto c21, 3: goto c22 }
	}
	chain prerouting {
		type nat hook prerouting priority -100
		fib daddr type local tcp dport 30080 goto nodeport
	}
	chain output {
		type nat hook output priority -100
		fib daddr type local tcp dport 30080 goto nodeport
	}
	chain forward {
		type filter hook forward priority 0
		ct state invalid drop
	}
	chain postrouting {
		type nat hook postrouting priority 100
		meta mark 0x4000 masquerade
	}
}
`

// TestNodePorts checks endpoints that are node ports, including those of the load balancer's own
// node. netfilter forwards packets to them to containers on either node, as with kube-proxy. Every
// host gets answers of all four containers, through each node.
func TestNodePorts(t *testing.T) {
	t.Parallel()
	for _, hook := range []string{"auto", "clsact"} {
		t.Run(hook, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, "--attach="+hook)
			for k, node := range []string{"node1", "node2"} {
				file := t.TempDir() + "/rules"
				if err := os.WriteFile(file, fmt.Appendf(nil, kubeProxy, k+1), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := c.hosts[node].Sysctl("net/bridge/bridge-nf-call-iptables", "1"); err != nil {
					t.Skip("the kernel has no br_netfilter, which clusters need:", err)
				}
				rig.MustRun(t, c.hosts[node], "nft", "-f", file)
			}
			for n, mode := range []string{"default", "onearm", "auto"} {
				for k, node := range []string{"node1", "node2"} {
					vip := fmt.Sprintf("20.20.20.%d%d", n+1, k)
					c.balance(vip, mode, 30080, clusterAddress(node, false)+":1", "--probetype=none") // probes would also change the order of containers
					for _, client := range clusterHosts {
						if mode == "default" && repliesBypassBalancer(client, node) {
							continue
						}
						var got []string
						for range 4 {
							who, _ := c.ask(client, vip)
							got = append(got, who)
						}
						slices.Sort(got)
						if want := []string{"c11", "c12", "c21", "c22"}; !slices.Equal(got, want) {
							t.Errorf("mode %s, from %s by %s: answered by %q, want %q", mode, client, node, got, want)
						}
					}
				}
			}
		})
	}
}

package modes_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// ulclHosts are the hosts of the existing loxilb's scenario ulcltcplb: users, a balancer near them,
// one near the servers, and the servers.
var ulclHosts = []string{"ue1", "ue2", "llb1", "llb2", "l3e1", "l3e2", "l3e3"}

// ulcl is the network of that scenario, with a daemon on both balancers.
type ulcl struct {
	t       *testing.T
	lab     *netnstest.Lab
	hosts   map[string]*netnstest.Host
	daemons map[string]*netnstest.Daemon
}

func newULCL(t *testing.T) *ulcl {
	t.Helper()
	u := &ulcl{t: t, lab: labtest.New(t), hosts: map[string]*netnstest.Host{}, daemons: map[string]*netnstest.Daemon{}}
	for _, name := range ulclHosts {
		h, err := u.lab.Host(name)
		if err != nil {
			t.Fatal(err)
		}
		u.hosts[name] = h
	}
	u.link("ue1", "32.32.32.1/24", "llb1", "32.32.32.254/24")
	u.link("ue2", "31.31.31.1/24", "llb1", "31.31.31.254/24")
	u.link("llb1", "10.10.10.59/24 2001:db8:10::59/64", "llb2", "10.10.10.56/24 2001:db8:10::56/64")
	for i := range 3 {
		u.link(fmt.Sprintf("l3e%d", i+1), fmt.Sprintf("%d.%[1]d.%[1]d.1/24", 25+i), "llb2", fmt.Sprintf("%d.%[1]d.%[1]d.254/24", 25+i))
		u.route("llb1", fmt.Sprintf("%d.%[1]d.%[1]d.0/24", 25+i), "10.10.10.56")
		u.route(fmt.Sprintf("l3e%d", i+1), "0.0.0.0/0", fmt.Sprintf("%d.%[1]d.%[1]d.254", 25+i))
	}
	u.route("ue1", "0.0.0.0/0", "32.32.32.254")
	u.route("ue2", "0.0.0.0/0", "31.31.31.254")
	u.route("llb2", "32.32.32.0/24", "10.10.10.59")
	u.route("llb2", "31.31.31.0/24", "10.10.10.59")
	for _, name := range []string{"llb1", "llb2"} {
		for _, s := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
			if err := u.hosts[name].Sysctl(s, "1"); err != nil {
				t.Fatal(err)
			}
		}
		u.start(name)
	}
	return u
}

// link connects two hosts, which call their ends after each other.
func (u *ulcl) link(a, ofA, b, ofB string) {
	u.t.Helper()
	end := func(host, other, addresses string) netnstest.End {
		e := netnstest.End{Host: u.hosts[host], Interface: other}
		for _, one := range strings.Fields(addresses) {
			e.Addresses = append(e.Addresses, netip.MustParsePrefix(one))
		}
		return e
	}
	if err := u.lab.Link(end(a, b, ofA), end(b, a, ofB), 0); err != nil {
		u.t.Fatal(err)
	}
}

func (u *ulcl) route(host, to, via string) {
	u.t.Helper()
	if err := u.hosts[host].AddRoute(netip.MustParsePrefix(to), netip.MustParseAddr(via)); err != nil {
		u.t.Fatal(err)
	}
}

func (u *ulcl) start(name string) {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(u.t.Context(), rig.StartPatience)
	defer cancel()
	d, err := u.hosts[name].StartDaemon(ctx, netnstest.DaemonOptions{Bin: rig.Bin()})
	if err != nil {
		u.t.Fatal(err)
	}
	u.daemons[name] = d
	u.t.Cleanup(func() {
		if u.t.Failed() {
			u.t.Logf("loxilb's log on %s:\n%s", name, d.Log())
		}
	})
}

func (u *ulcl) loxicmd(host, line string) {
	u.t.Helper()
	if out, err := u.daemons[host].Command(strings.Fields(line)...); err != nil {
		u.t.Fatalf("loxicmd %s: %v: %s", line, err, out)
	}
}

// ask returns the name of the server that answers a user.
func (u *ulcl) ask(user, address string) (string, error) {
	ctx, cancel := context.WithTimeout(u.t.Context(), rig.Patience)
	defer cancel()
	c, err := u.hosts[user].DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer c.Close() //nolint:errcheck // of a test
	_ = c.SetDeadline(time.Now().Add(rig.Patience))
	name, err := io.ReadAll(c)
	return string(name), err
}

// TestULCL has users talk to a service through a tunnel between two balancers, as the existing
// loxilb's scenario ulcltcplb has them: one user's tunnel over IPv4, as there, the other one's over
// IPv6. Requests to the servers themselves stay outside of tunnels.
//
// P95 The existing loxilb's scenario ulcltcplb works: users talk to a service by GTP-U, and to its
// endpoints directly
func TestULCL(t *testing.T) {
	t.Parallel()
	u := newULCL(t)
	var large strings.Builder
	for large.Len() < 64<<10 { // many segments of the largest size
		large.WriteString("all of this is to arrive in order; ")
	}
	for i := range 3 {
		name := fmt.Sprintf("server%d", i+1)
		if err := u.hosts[fmt.Sprintf("l3e%d", i+1)].ServeTCP(":8080", func(c *net.TCPConn) {
			_, _ = io.WriteString(c, name+large.String())
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, line := range []string{
		"create session user1 88.88.88.88 --accessNetworkTunnel 1:10.10.10.56 --coreNetworkTunnel=1:10.10.10.59",
		"create sessionulcl user1 --ulclArgs=11:32.32.32.1",
		"create session user2 88.88.88.88 --accessNetworkTunnel 2:2001:db8:10::56 --coreNetworkTunnel=2:2001:db8:10::59",
		"create sessionulcl user2 --ulclArgs=12:31.31.31.1",
	} {
		u.loxicmd("llb1", line)
	}
	for _, line := range []string{
		"create session user1 32.32.32.1 --accessNetworkTunnel 1:10.10.10.59 --coreNetworkTunnel=1:10.10.10.56",
		"create sessionulcl user1 --ulclArgs=11:88.88.88.88",
		"create session user2 31.31.31.1 --accessNetworkTunnel 2:2001:db8:10::59 --coreNetworkTunnel=2:2001:db8:10::56",
		"create sessionulcl user2 --ulclArgs=12:88.88.88.88",
		"create lb 88.88.88.88 --tcp=2020:8080 --endpoints=25.25.25.1:1,26.26.26.1:1,27.27.27.1:1",
	} {
		u.loxicmd("llb2", line)
	}
	wants := func(user, address, server string) {
		t.Helper()
		got, err := u.ask(user, address)
		if err != nil || got != server+large.String() {
			t.Errorf("%s asks %s: %.20q of %d bytes, %v; want %s", user, address, got, len(got), err, server)
		}
	}
	for _, user := range []string{"ue1", "ue2"} {
		for i := range 3 {
			wants(user, fmt.Sprintf("%d.%[1]d.%[1]d.1:8080", 25+i), fmt.Sprintf("server%d", i+1))
		}
	}
	for _, user := range []string{"ue1", "ue2"} {
		for range 2 {
			for i := range 3 {
				wants(user, "88.88.88.88:2020", fmt.Sprintf("server%d", i+1))
			}
		}
	}
	u.counted()

	d := u.daemons["llb2"]
	if out,
		err := d.Command(strings.Fields("create session user3 9.9.9.9 --accessNetworkTunnel=3:10.10.10.59 --coreNetworkTunnel=3:2001:db8::1")...); err == nil ||
		!strings.Contains(out, "another IP version") {
		t.Errorf("a tunnel with ends of both IP versions: %v: %s", err, out)
	}
	u.loxicmd("llb2", "create session user3 32.32.32.1 --accessNetworkTunnel=3:10.10.10.59 --coreNetworkTunnel=3:10.10.10.56")
	if out, err := d.Command(strings.Fields("create sessionulcl user3 --ulclArgs=11:88.88.88.88")...); err == nil || !strings.Contains(out, `belong to session "user1"`) {
		t.Errorf("a user and address that another session has: %v: %s", err, out)
	}
}

// counted checks that users' packets were in tunnels on both balancers, except for those to the
// servers themselves, and that a restart of the daemon keeps the counts.
func (u *ulcl) counted() {
	u.t.Helper()
	for _, name := range []string{"llb1", "llb2"} {
		before := u.packets(name)
		if before["taken"] < 20 || before["sent"] < 20 || before["forged"]+before["failed"]+before["unclassified"] != 0 {
			u.t.Errorf("%s counts %v", name, before)
		}
		if name == "llb2" && before["routed"] < 20 {
			u.t.Errorf("answers of servers outside of tunnels: %v", before)
		}
		d := u.daemons[name]
		d.Kill()
		ctx, cancel := context.WithTimeout(u.t.Context(), rig.StartPatience)
		err := d.Start(ctx)
		cancel()
		if err != nil {
			u.t.Fatal(err)
		}
		labtest.Eventually(u.t, rig.Patience, func(context.Context) error {
			if after := u.packets(name); after["taken"] < before["taken"] || after["sent"] < before["sent"] {
				return fmt.Errorf("%s counts %v after a restart, and counted %v before", name, after, before)
			}
			return nil
		})
	}
}

// packets returns a balancer's packets of mobile users, by outcome.
func (u *ulcl) packets(host string) map[string]int {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(u.t.Context(), rig.Patience)
	defer cancel()
	page, err := u.hosts[host].Get(ctx, "127.0.0.1:11111/netlox/v1/metrics")
	if err != nil {
		u.t.Fatal(err)
	}
	out := map[string]int{}
	for line := range strings.Lines(page) {
		rest, is := strings.CutPrefix(line, `loxilb_gtp_packets_total{outcome="`)
		if outcome, n, whole := strings.Cut(strings.TrimSpace(rest), `"} `); is && whole {
			out[outcome], _ = strconv.Atoi(n)
		}
	}
	return out
}

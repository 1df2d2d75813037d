package compat_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"loxilb/test/await"
	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// egressPair is a pair of nodes that send outgoing connections of the server through the master.
// The server's default route leads to one of the nodes, whatever its role.
type egressPair struct{ *pair }

// Destinations that only default routes lead to, and the shared source addresses.
const (
	outside4 = "198.51.100.1"
	outside6 = "2001:db8:ffff::1"
	egress4  = "100.100.100.201"
	egress6  = "2001:db8:100::201"
)

func newEgressPair(t *testing.T, args ...string) *egressPair {
	t.Helper()
	p := &egressPair{newPair(t, append(args, "--clusterinterface=eth0")...)}
	for _, a := range []string{outside4 + "/32", outside6 + "/128"} {
		if err := p.router.AddAddress("lo", rig.Prefix(a)); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range p.nodes {
		rig.MustRun(t, n.LB, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
		rig.MustRun(t, n.LB, "ip", "route", "add", "default", "via", "100.100.100.2")
		rig.MustRun(t, n.LB, "ip", "route", "add", "default", "via", "2001:db8:100::2")
		n.Loxicmd("create lb 0.0.0.0 --tcp=9999:9999 --endpoints=100.100.100.253:1,100.100.100.252:1 --egress")
		n.Loxicmd("create firewall --firewallRule=sourceIP:31.31.31.1/32 --snat=%s --egress", egress4)
		n.Loxicmd("create firewall --firewallRule=sourceIP:2001:db8:31::1/128 --snat=%s --egress", egress6)
	}
	rig.MustRun(t, p.server, "ip", "route", "add", "default", "via", "31.31.31.253")
	rig.MustRun(t, p.server, "ip", "route", "add", "default", "via", "2001:db8:31::253")
	(&rig.Rig{T: t, Standard: &netnstest.Standard{Lab: p.Lab}}).ServeSource(p.router, ":7000", rig.Join(outside4, 7000), rig.Join(outside6, 7000))
	return p
}

// wantEgressThrough waits until new connections of the server leave through a node, with the shared
// address.
func (p *egressPair) wantEgressThrough(n *node) {
	p.t.Helper()
	for _, network := range []string{"tcp", "udp"} {
		for _, to := range []struct{ address, source string }{{outside4, egress4}, {outside6, egress6}} {
			p.wantEgressAs(n, network, to.address, to.source)
		}
	}
}

// wantEgressAs waits until a new connection of the server to an address has the given source.
func (p *egressPair) wantEgressAs(n *node, network, address, source string) {
	p.t.Helper()
	labtest.Eventually(p.t, rig.Patience, func(ctx context.Context) error {
		short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		c, err := p.server.DialContext(short, network, rig.Join(address, 7000))
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(300 * time.Millisecond))
		if got, err := rig.AskSource(c); err != nil || got != source {
			return fmt.Errorf("%s to %s: seen as %q, want %s: %w", network, address, got, source, err)
		}
		return n.checkTranslates(c)
	})
}

// wantFragments checks that fragmented datagrams leave with the shared address, although only the
// first fragment has the ports.
func (p *egressPair) wantFragments() {
	p.t.Helper()
	for _, to := range []struct{ address, source string }{{outside4, egress4}, {outside6, egress6}} {
		c, err := p.server.DialContext(p.t.Context(), "udp", rig.Join(to.address, 7000))
		if err != nil {
			p.t.Fatal(err)
		}
		defer c.Close()
		labtest.Eventually(p.t, rig.Patience, func(context.Context) error {
			_ = c.SetDeadline(time.Now().Add(300 * time.Millisecond))
			if _, err := c.Write(make([]byte, 4000)); err != nil {
				return err
			}
			answer := make([]byte, 100)
			n, err := c.Read(answer)
			if err == nil && !strings.Contains(string(answer[:n]), to.source) {
				err = fmt.Errorf("4,000 bytes to %s: seen as %q, want %s", to.address, answer[:n], to.source)
			}
			return err
		})
	}
}

// checkTranslates returns an error unless a node translates the connection.
func (n *node) checkTranslates(c net.Conn) error {
	_, port, _ := net.SplitHostPort(c.LocalAddr().String())
	out, err := n.Command("get", "ct", "-o", "json")
	if err == nil && !strings.Contains(out, `"sourcePort": `+port) {
		err = fmt.Errorf("node .%s does not translate port %s:\n%s", n.addressEnd, port, out)
	}
	return err
}

// TestEgressGateway checks that outgoing connections leave through the current master with the
// shared address, whichever node the server sends them to, also after a change of roles. Without a
// master, no packet leaves with the server's own address.
func TestEgressGateway(t *testing.T) {
	t.Parallel()
	p := newEgressPair(t)
	a, b := p.nodes[0], p.nodes[1]
	for _, master := range []*node{b, a, b} {
		other := a
		if master == a {
			other = b
		}
		other.Loxicmd("set hastate BACKUP --instance=default")
		master.Loxicmd("set hastate MASTER --instance=default")
		begun := time.Now()
		p.wantEgressThrough(master)
		t.Logf("connections leave through .%s after %v", master.addressEnd, time.Since(begun).Round(time.Millisecond))
	}
	b.Loxicmd("set hastate BACKUP --instance=default") // there is no master now
	await.NoError(t, rig.Patience, func() error {      // rules change after the role, with a delay
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		c, err := p.server.DialContext(ctx, "tcp", net.JoinHostPort(outside4, "7000"))
		if err != nil {
			return nil
		}
		who, _ := rig.AskSource(c)
		return fmt.Errorf("without a master, a connection leaves as %s", who)
	})
}

// TestEgressGatewayRepairs checks that a node restores its tunnels and rules after someone else has
// removed them or renamed its interface. It does so whatever interfaces --whitelist names, and also
// if the owner is behind a router.
func TestEgressGatewayRepairs(t *testing.T) {
	t.Parallel()
	p := newEgressPair(t, "--whitelist=^eth")
	a, b := p.nodes[0], p.nodes[1]
	b.Loxicmd("set hastate MASTER --instance=default")
	p.wantEgressThrough(b)
	p.wantFragments()
	tunnels := "for i in $(ip -o link show type vxlan | cut -d: -f2); do ip link "
	for what, command := range map[string]string{
		"tunnels are removed": tunnels + "del $i; done",
		"tunnels are down":    tunnels + "set $i down; done",
		"rules are removed":   "ip rule flush proto 108; ip -6 rule flush proto 108",
		"the interface is new": "ip link set eth0 down; ip link set eth0 name was; ip link set was name eth0; ip link set eth0 up; ip route replace " +
			"default via 100.100.100.2; ip -6 address replace 2001:db8:100::253/64 dev eth0 nodad; ip route replace default via 2001:db8:100::2",
		"its MTU is lower": "ip link set eth0 mtu 1400",
	} {
		t.Log(what)
		rig.MustRun(t, a.LB, "sh", "-c", command)
		p.wantEgressThrough(b)
	}
	// Only the default route leads to the owner.
	for _, n := range p.nodes {
		n.Loxicmd("create firewall --firewallRule=sourceIP:31.31.31.1/32,preference:7 --snat=192.0.2.77 --egress")
	}
	rig.MustRun(t, p.router, "sysctl", "-qw", "net.ipv4.ip_forward=1")
	rig.MustRun(t, p.router, "ip", "route", "add", "192.0.2.77", "via", "100.100.100.252")
	p.wantEgressAs(b, "tcp", outside4, "192.0.2.77")
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		out, err := a.LB.Run("ip", "-o", "link", "show", "type", "vxlan")
		if err == nil && (!strings.Contains(out, "mtu 1350") || !strings.Contains(out, "mtu 1330")) {
			err = fmt.Errorf("tunnels over MTU 1400:\n%s", out)
		}
		return err
	})
}

// TestEgressGatewayEnds checks that tunnels and rules are removed with the objects and the flag
// that require them.
func TestEgressGatewayEnds(t *testing.T) {
	t.Parallel()
	p := newEgressPair(t)
	a := p.nodes[0]
	left := func() string {
		out, _ := a.LB.Run("sh", "-c", "ip -o link show type vxlan; ip rule show pref 9990; ip -6 rule show pref 9991; ip rule show pref 9993")
		return out
	}
	if left() == "" {
		t.Fatal("the tunnel does not exist")
	}
	a.Stop()
	a.SetArgs()
	a.Restart()
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		if out := left(); out != "" {
			return fmt.Errorf("without --clusterinterface, the kernel still has: %s", out)
		}
		return nil
	})
}

// TestEgressGatewayHandsOver checks that a node that loses the role resets the connections that it
// translates: their answers go to the new master.
func TestEgressGatewayHandsOver(t *testing.T) {
	t.Parallel()
	p := newEgressPair(t)
	a, b := p.nodes[0], p.nodes[1]
	a.Loxicmd("set hastate MASTER --instance=default")
	p.wantEgressThrough(a)
	c, err := p.server.DialContext(t.Context(), "tcp", rig.Join(outside4, 7000))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	a.Loxicmd("set hastate BACKUP --instance=default")
	b.Loxicmd("set hastate MASTER --instance=default")
	_ = c.SetReadDeadline(time.Now().Add(rig.Patience))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection does not end by a reset: %v", err)
	}
	p.wantEgressThrough(b)
}

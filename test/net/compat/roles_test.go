package compat_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// The VIPs of a pair, in the clients' network.
const (
	pairVIP4 = "100.100.100.200"
	pairVIP6 = "2001:db8:100::200"
)

// pair is two load balancers side by side, between a network of clients and one of a server.
//
//	client .1 ─┐                  ┌─ .253 a .253 ─┐
//	           100.100.100.0/24 ──┤               ├── 31.31.31.0/24 ── .1 server
//	router .2 ─┘                  └─ .252 b .252 ─┘
type pair struct {
	*netnstest.Lab
	t                      *testing.T
	client, router, server *netnstest.Host
	nodes                  [2]*node
}

// node is one of the two balancers.
type node struct {
	*rig.Rig
	addressEnd string // last part of its addresses, such as "253"
}

func newPair(t *testing.T, args ...string) *pair {
	t.Helper()
	p := &pair{Lab: labtest.New(t), t: t}
	host := func(name string) *netnstest.Host {
		h, err := p.Host(name)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	lan := host("lan")
	for _, bridge := range []string{"front", "back"} {
		rig.MustRun(t, lan, "ip", "link", "add", bridge, "type", "bridge", "mcast_snooping", "0")
		rig.MustRun(t, lan, "ip", "link", "set", bridge, "up")
	}
	plug := func(h *netnstest.Host, name, bridge string, addresses ...string) {
		here, there := netnstest.End{Host: h, Interface: name}, netnstest.End{Host: lan, Interface: bridge + "-" + h.Name}
		for _, a := range addresses {
			here.Addresses = append(here.Addresses, netip.MustParsePrefix(a))
		}
		if err := p.Link(here, there, 0); err != nil {
			t.Fatal(err)
		}
		rig.MustRun(t, lan, "ip", "link", "set", there.Interface, "master", bridge)
	}
	p.client, p.router, p.server = host("client"), host("router"), host("server")
	plug(p.client, "eth0", "front", "100.100.100.1/24", "2001:db8:100::1/64")
	plug(p.router, "eth0", "front", "100.100.100.2/24", "2001:db8:100::2/64")
	plug(p.server, "eth0", "back", "31.31.31.1/24", "2001:db8:31::1/64")
	(&rig.Rig{T: t, Standard: &netnstest.Standard{Lab: p.Lab}}).ServeSource(p.server, ":7000")
	for i, name := range []string{"a", "b"} {
		h := host(name)
		end := fmt.Sprint(253 - i)
		plug(h, "eth0", "front", "100.100.100."+end+"/24", "2001:db8:100::"+end+"/64")
		plug(h, "eth1", "back", "31.31.31."+end+"/24", "2001:db8:31::"+end+"/64")
		ctx, cancel := context.WithTimeout(t.Context(), rig.StartPatience)
		defer cancel()
		d, err := h.StartDaemon(ctx, netnstest.DaemonOptions{Bin: rig.Bin(), Args: args})
		if err != nil {
			t.Fatal(err)
		}
		r := &rig.Rig{Standard: &netnstest.Standard{Lab: p.Lab, LB: h}, Daemon: d, T: t}
		p.nodes[i] = &node{r, end}
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("log of %s:\n%s", name, r.Log())
			}
		})
		r.Loxicmd("set hastate BACKUP --instance=default") // until keepalived sets the role
		r.Loxicmd("create lb %s --tcp=80:7000 --endpoints=31.31.31.1:1 --mode=onearm", pairVIP4)
		r.Loxicmd("create lb %s --tcp=80:7000 --endpoints=[2001:db8:31::1]:1 --mode=onearm --name=web:llb-inst0", pairVIP6)
	}
	return p
}

// dialVIP opens a connection to a VIP, and returns it with the addressEnd of the node that forwards
// it.
func (p *pair) dialVIP(ctx context.Context, from *netnstest.Host, vip string) (net.Conn, string, error) {
	c, err := from.DialContext(ctx, "tcp", rig.Join(vip, 80))
	if err != nil {
		return nil, "", err
	}
	p.Cleanup(func() { _ = c.Close() })
	end, err := sourceEnd(c)
	return c, end, err
}

// sourceEnd returns the last part of the source address that the server sees.
func sourceEnd(c net.Conn) (string, error) {
	who, err := rig.AskSource(c)
	return who[strings.LastIndexAny(who, ".:")+1:], err
}

// wantNewConnectionsOn checks that the node forwards new connections to both VIPs within a second.
func (p *pair) wantNewConnectionsOn(n *node) {
	p.t.Helper()
	for _, vip := range []string{pairVIP4, pairVIP6} {
		labtest.Promised(p.t, time.Second, func(ctx context.Context) error {
			short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			defer cancel()
			c, end, err := p.dialVIP(short, p.client, vip)
			if err == nil && end != n.addressEnd {
				err = fmt.Errorf("node .%s forwards connections to %s, want .%s", end, vip, n.addressEnd)
			}
			if c != nil {
				err = errors.Join(err, c.Close())
			}
			return err
		})
	}
}

// wantVIPs checks that a node has both VIPs if want is true, and neither otherwise.
func (n *node) wantVIPs(want bool) {
	n.T.Helper()
	for _, vip := range []string{pairVIP4, pairVIP6} {
		if n.HasAddress(vip) != want {
			n.T.Errorf(".%s has %s: %v, want %v", n.addressEnd, vip, !want, want)
		}
	}
}

// awaitRole waits until a node has the given role.
func (n *node) awaitRole(role string) {
	n.T.Helper()
	labtest.Eventually(n.T, 4*rig.Patience, func(context.Context) error {
		out, err := n.Command("get", "hastate")
		if err == nil && !strings.Contains(out, role) {
			err = fmt.Errorf("want %s:\n%s", role, out)
		}
		return err
	})
}

// keepalived starts keepalived on a node. It runs the script of docs/ha.md, with the command set to
// set $ROLE.
func (n *node) keepalived(priority int, set string) *netnstest.Process {
	n.T.Helper()
	dir := n.T.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			n.T.Fatal(err)
		}
		return path
	}
	script := file("notify.sh", strings.NewReplacer(
		`loxicmd set hastate "$(cat /run/loxilb.role)" --lease=10s`, strings.ReplaceAll(set, "$ROLE", "$(cat "+dir+"/role)"),
		"/run/loxilb.role", dir+"/role",
	).Replace(roleScript(n.T)), 0o755)
	conf := file("keepalived.conf", fmt.Sprintf(`
global_defs {
	script_user root
	vrrp_rt_priority 50
	vrrp_notify_fifo %[1]s/fifo
	vrrp_notify_fifo_script %[2]s
}
vrrp_instance pair {
	version 3
	state BACKUP
	interface eth0
	virtual_router_id 101
	priority %[3]d
	advert_int 0.1
	virtual_ipaddress {
		100.100.100.150/32 dev lo
	}
}
`, dir, script, priority), 0o644)
	p, err := n.LB.Start(netnstest.Command{Args: []string{"keepalived", "-n", "-l", "-P", "-f", conf, "-p", filepath.Join(dir, "pid"), "-r", filepath.Join(dir, "vrrp.pid")}})
	if err != nil {
		n.T.Fatal(err)
	}
	n.T.Cleanup(func() {
		p.Signal(syscall.SIGTERM)
		_ = p.Wait()
		if n.T.Failed() {
			n.T.Logf("keepalived of .%s:\n%s", n.addressEnd, p.Output())
		}
	})
	return p
}

// roleScript returns the script of docs/ha.md for keepalived.
func roleScript(tb testing.TB) string {
	tb.Helper()
	text, err := os.ReadFile("../../../docs/ha.md")
	if err != nil {
		tb.Fatal(err)
	}
	const first = "#!/bin/sh\n# /etc/keepalived/loxilb.sh"
	_, after, found := strings.Cut(string(text), "```\n"+first)
	rest, _, closed := strings.Cut(after, "```")
	if !found || !closed {
		tb.Fatal("docs/ha.md has no script for keepalived")
	}
	return first + rest
}

// P50 With keepalived and two load balancers, new connections follow the new master within a
// second, only the master answers for VIPs, and connections that reach the other one continue
func TestKeepalived(t *testing.T) {
	t.Parallel()
	p := newPair(t, "--vip-adv-repeat=5")
	a, b := p.nodes[0], p.nodes[1]
	for _, n := range p.nodes {
		n.wantVIPs(false)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, end, err := p.dialVIP(ctx, p.client, pairVIP4); err == nil {
		t.Errorf("both nodes are BACKUP, but .%s answers for %s", end, pairVIP4)
	}

	// One node gets its role by the command line, the other as the contract's documentation
	// describes.
	byCommand := rig.Program("loxicmd") + ` set hastate "$ROLE" --lease=10s`
	keeper := a.keepalived(150, byCommand)
	b.keepalived(100, `curl -sS -X POST http://127.0.0.1:11111/netlox/v1/config/cistate -H "Content-Type: application/json" `+
		`-d "{\"instance\":\"default\",\"state\":\"$ROLE\",\"vip\":\"0.0.0.0\"}"`)
	a.awaitRole("MASTER")
	p.wantNewConnectionsOn(a)
	b.awaitRole("BACKUP")
	a.wantVIPs(true)
	b.wantVIPs(false)

	// A router with static neighbors sends packets to the VIPs only to the first node.
	mac, err := a.LB.MAC("eth0")
	if err != nil {
		t.Fatal(err)
	}
	var through []net.Conn
	for _, vip := range []string{pairVIP4, pairVIP6} {
		rig.MustRun(t, p.router, "ip", "neigh", "replace", vip, "lladdr", mac.String(), "nud", "permanent", "dev", "eth0")
		c, end, err := p.dialVIP(t.Context(), p.router, vip)
		if err != nil || end != a.addressEnd {
			t.Fatalf("%s: got .%s: %v, want no error, end == a.addressEnd", vip, end, err)
		}
		through = append(through, c)
	}

	keeper.Signal(syscall.SIGTERM)
	b.awaitRole("MASTER")
	p.wantNewConnectionsOn(b)
	a.awaitRole("STOP")
	a.wantVIPs(false)
	b.wantVIPs(true)
	for i, c := range through {
		if end, err := sourceEnd(c); err != nil || end != a.addressEnd {
			t.Errorf("connection %d through the backup: .%s: %v", i, end, err)
		}
	}
	if c, end, err := p.dialVIP(t.Context(), p.router, pairVIP4); err != nil || end != a.addressEnd {
		t.Errorf("a new connection %v to the backup: .%s: %v", c, end, err)
	}

	// A restart of the daemon keeps the role.
	a.Stop()
	a.Restart()
	a.awaitRole("STOP")
	a.wantVIPs(false)
	p.wantNewConnectionsOn(b)

	keeper = a.keepalived(150, byCommand)
	a.awaitRole("MASTER")
	p.wantNewConnectionsOn(a)
	b.awaitRole("BACKUP")
	b.wantVIPs(false)
	if out := a.Loxicmd("get events --kind=object"); !strings.Contains(out, "instance llb-inst0") {
		t.Errorf("no event reports the role:\n%s", out)
	}

	// keepalived sets a role while the daemon does not run. The daemon gets it when it starts.
	a.Stop()
	keeper.Signal(syscall.SIGTERM)
	_ = keeper.Wait()
	a.Restart()
	a.awaitRole("STOP")
	p.wantNewConnectionsOn(b)

	// keepalived and its child, which would report STOP, are killed together.
	keeper = a.keepalived(150, byCommand)
	a.awaitRole("MASTER")
	rig.MustRun(t, a.LB, "sh", "-c", fmt.Sprintf("kill -9 %[1]d $(pgrep -P %[1]d -x keepalived)", keeper.Pid()))
	a.awaitRole("STOP")
	p.wantNewConnectionsOn(b)
}

// TestInstances checks that a VIP is present while the instance in its service's name is not
// BACKUP. A VIP with services of two instances stays while one of them owns it.
func TestInstances(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	rig.ServeSources(r)
	r.Loxicmd("create lb 20.20.20.1 --tcp=80:7000 --endpoints=31.31.31.1:1 --name=ns_web:llb-inst1 --mode=fullnat")
	r.Loxicmd("create lb 20.20.20.1 --tcp=81:7000 --endpoints=31.31.31.1:1 --name=ns_web:llb-inst2 --mode=fullnat")
	r.Loxicmd("create lb 20.20.20.2 --tcp=80:7000 --endpoints=31.31.31.1:1 --name=web")
	wantAddresses := func(first, second bool) {
		t.Helper()
		if r.HasAddress("20.20.20.1") != first || r.HasAddress("20.20.20.2") != second {
			t.Errorf("20.20.20.1: %v, want %v; 20.20.20.2: %v, want %v", !first, first, r.HasAddress("20.20.20.2"), second)
		}
	}
	wantAddresses(true, true)
	r.Loxicmd("set hastate BACKUP --instance=llb-inst1")
	wantAddresses(true, true)
	r.Loxicmd("set hastate FAULT --instance=llb-inst2")
	wantAddresses(false, true)
	r.WantSource(r.Client, "tcp", "20.20.20.1:80", "20.20.20.1") // the VIP is still routed here
	r.Loxicmd("set hastate BACKUP")
	wantAddresses(false, false)
	r.Loxicmd("set ha master --instance=llb-inst1 --vip=20.20.20.77")
	wantAddresses(true, false)
	if !r.HasAddress("20.20.20.77") {
		t.Error("no node has the cluster's address")
	}
	r.WantSource(r.Client, "tcp", "20.20.20.1:80", "20.20.20.77")
	r.WantSource(r.Client, "tcp", "20.20.20.1:81", "20.20.20.1")
	r.Loxicmd("set hastate MASTER --instance=llb-inst1")
	r.WantSource(r.Client, "tcp", "20.20.20.1:80", "20.20.20.1")
	r.Loxicmd("delete lb 20.20.20.1 --tcp=80")
	wantAddresses(false, false)
	for _, i := range []string{"llb-inst0", "llb-inst1", "llb-inst2"} {
		r.Loxicmd("set hastate NOT_DEFINED --instance=%s", i)
	}
	wantAddresses(true, true)
	if out := r.Loxicmd("get ha"); !strings.Contains(out, "llb-inst0 | NOT_DEFINED") || strings.Contains(out, "llb-inst1") {
		t.Errorf(`got %v, want "llb-inst0 | NOT_DEFINED" in out, no "llb-inst1" in out`, out)
	}
}

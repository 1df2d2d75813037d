package roles_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

const (
	vip       = "10.0.0.100"
	vip6      = "2001:db8::100"
	interval  = 100 * time.Millisecond
	detection = 3 * interval
	patience  = 20 * time.Second
)

// pair is two nodes and a client in the network 10.0.0.0/24: a has .1, b .2, and the client .9.
type pair struct {
	*netnstest.Lab
	t      testing.TB
	lan    *netnstest.Host
	client *netnstest.Host
	nodes  [2]*node

	observedVIP  string        // the VIP of observeWhile
	awaitAnswers func(n int64) // waits until the observer of observeWhile has received n more answers
}

// node is one of the two balancers.
type node struct {
	*rig.Rig
	name    string
	address string
	mac     string
}

// newPair starts two nodes. b has the higher address, so it is MASTER after a common start.
func newPair(t testing.TB, flags ...string) *pair {
	t.Helper()
	return newPairOver(t, "10.0.0.%d", flags...)
}

// newPairOver starts two nodes with a session between the addresses that form gives for 1 and 2.
func newPairOver(t testing.TB, form string, flags ...string) *pair {
	t.Helper()
	p := &pair{Lab: labtest.New(t), t: t, observedVIP: vip}
	p.lan, p.client = p.host("lan"), p.host("client")
	rig.MustRun(t, p.lan, "ip", "link", "add", "switch", "type", "bridge", "mcast_snooping", "0")
	rig.MustRun(t, p.lan, "ip", "link", "set", "switch", "up")
	p.plug(p.client, "10.0.0.9/24", "2001:db8::9/64")
	for i, name := range []string{"a", "b"} {
		h := p.host(name)
		p.plug(h, fmt.Sprintf("10.0.0.%d/24", i+1), fmt.Sprintf("2001:db8::%d/64", i+1), fmt.Sprintf("fe80::%d/64", i+1))
		mac, err := h.MAC("eth0")
		if err != nil {
			t.Fatal(err)
		}
		r := &rig.Rig{Standard: &netnstest.Standard{Lab: p.Lab, LB: h}, T: t}
		p.nodes[i] = &node{Rig: r, name: name, address: fmt.Sprintf(form, i+1), mac: mac.String()}
	}
	for i, n := range p.nodes {
		ctx, cancel := context.WithTimeout(t.Context(), rig.StartPatience)
		defer cancel()
		args := append([]string{fmt.Sprintf("--ka=%s:%s:%d", bracketed(p.nodes[1-i].address), bracketed(n.address), interval.Microseconds())}, flags...)
		d, err := n.LB.StartDaemon(ctx, netnstest.DaemonOptions{Bin: rig.Bin(), Args: args})
		if err != nil {
			t.Fatal(err)
		}
		n.Daemon = d
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("log of %s:\n%s", n.name, n.Log())
			}
		})
		n.Loxicmd("create lb %s --tcp=80:80 --endpoints=10.0.0.9:1 --mode=onearm", vip)
		n.Loxicmd("create lb %s --tcp=80:80 --endpoints=[2001:db8::9]:1 --mode=onearm", vip6)
	}
	return p
}

// bracketed returns an address in the syntax of --ka.
func bracketed(address string) string {
	if strings.Contains(address, ":") {
		return "[" + address + "]"
	}
	return address
}

// observer observes a VIP from the client.
type observer struct {
	*labtest.Observer
	t   testing.TB
	vip netip.Addr
}

// observe starts an observer on the client.
func (p *pair) observe(vip string) *observer {
	p.t.Helper()
	to, from := netip.MustParseAddr(vip), netip.MustParseAddr("10.0.0.9")
	if to.Is6() {
		from = netip.MustParseAddr("2001:db8::9")
	}
	return &observer{labtest.Observe(p.t, p.client, from, to), p.t, to}
}

func (p *pair) host(name string) *netnstest.Host {
	p.t.Helper()
	h, err := p.Host(name)
	if err != nil {
		p.t.Fatal(err)
	}
	return h
}

// plug connects a host to the switch.
func (p *pair) plug(h *netnstest.Host, addresses ...string) {
	p.t.Helper()
	here, there := netnstest.End{Host: h, Interface: "eth0"}, netnstest.End{Host: p.lan, Interface: "to-" + h.Name}
	for _, a := range addresses {
		here.Addresses = append(here.Addresses, netip.MustParsePrefix(a))
	}
	if err := p.Link(here, there, 0); err != nil {
		p.t.Fatal(err)
	}
	rig.MustRun(p.t, p.lan, "ip", "link", "set", there.Interface, "master", "switch")
}

// setPartition makes the switch drop packets between the nodes, or forward them again. Both nodes
// still reach the client.
func (p *pair) setPartition(on bool) {
	p.t.Helper()
	word := map[bool]string{true: "on", false: "off"}[on]
	for _, n := range p.nodes {
		rig.MustRun(p.t, p.lan, "bridge", "link", "set", "dev", "to-"+n.name, "isolated", word)
	}
}

// awaitRole waits until a node has the given role.
func (n *node) awaitRole(role string) {
	n.T.Helper()
	labtest.Eventually(n.T, patience, func(context.Context) error {
		out, err := n.Command("get", "hastate")
		if err == nil && !strings.Contains(out, role) {
			err = fmt.Errorf("%s: want %s:\n%s", n.name, role, out)
		}
		return err
	})
}

// awaitRoles waits until the given node is MASTER, the other one is BACKUP, and their sessions are
// up.
func (p *pair) awaitRoles(master *node) {
	p.t.Helper()
	for _, n := range p.nodes {
		role := "BACKUP"
		if n == master {
			role = "MASTER"
		}
		n.awaitRole(role)
	}
	p.awaitSessions()
}

// awaitSessions waits until the sessions of both nodes are up.
func (p *pair) awaitSessions() {
	p.t.Helper()
	labtest.Eventually(p.t, patience, func(context.Context) error {
		for _, n := range p.nodes {
			out, err := n.Command("get", "bfd")
			if err == nil && !strings.Contains(out, "BFDUp") {
				err = errors.New(out)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", n.name, err)
			}
		}
		return nil
	})
}

// awaitElection waits until one node is MASTER and the other BACKUP, and returns them.
func (p *pair) awaitElection() (master, backup *node) {
	p.t.Helper()
	labtest.Eventually(p.t, patience, func(context.Context) error {
		master, backup = nil, nil
		for _, n := range p.nodes {
			out, err := n.Command("get", "hastate")
			switch {
			case err != nil:
				return err
			case strings.Contains(out, "MASTER"):
				master = n
			case strings.Contains(out, "BACKUP"):
				backup = n
			}
		}
		if master == nil || backup == nil {
			return fmt.Errorf("MASTER is %v, BACKUP %v", master, backup)
		}
		return nil
	})
	p.awaitRoles(master)
	return master, backup
}

// start starts a daemon again.
func (n *node) start() {
	n.T.Helper()
	ctx, cancel := context.WithTimeout(n.T.Context(), rig.StartPatience)
	defer cancel()
	if err := n.Start(ctx); err != nil {
		n.T.Fatal(err)
	}
}

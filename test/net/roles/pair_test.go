package roles_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

const (
	vip       = "10.0.0.100"
	interval  = 100 * time.Millisecond
	detection = 3 * interval
	patience  = 20 * time.Second
)

// pair is two nodes and a client at a switch: a .1, b .2, client .9 of 10.0.0.0/24.
type pair struct {
	*netnstest.Lab
	t      testing.TB
	lan    *netnstest.Host
	client *netnstest.Host
	nodes  [2]*node

	answered func(n int64) // waits for n more answers to the observer of during
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
	p := &pair{Lab: labtest.New(t), t: t}
	p.lan, p.client = p.host("lan"), p.host("client")
	rig.MustRun(t, p.lan, "ip", "link", "add", "switch", "type", "bridge", "mcast_snooping", "0")
	rig.MustRun(t, p.lan, "ip", "link", "set", "switch", "up")
	p.plug(p.client, "10.0.0.9/24", "2001:db8::9/64")
	for i, name := range []string{"a", "b"} {
		h := p.host(name)
		p.plug(h, fmt.Sprintf("10.0.0.%d/24", i+1), fmt.Sprintf("2001:db8::%d/64", i+1))
		mac, err := h.MAC("eth0")
		if err != nil {
			t.Fatal(err)
		}
		r := &rig.Rig{Standard: &netnstest.Standard{Lab: p.Lab, LB: h}, T: t}
		p.nodes[i] = &node{Rig: r, name: name, address: fmt.Sprintf("10.0.0.%d", i+1), mac: mac.String()}
	}
	for i, n := range p.nodes {
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		defer cancel()
		args := append([]string{fmt.Sprintf("--ka=%s:%s:%d", p.nodes[1-i].address, n.address, interval.Microseconds())}, flags...)
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
	}
	return p
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

// partition separates the nodes from each other, and neither from the client; or ends that.
func (p *pair) partition(on bool) {
	p.t.Helper()
	word := map[bool]string{true: "on", false: "off"}[on]
	for _, n := range p.nodes {
		rig.MustRun(p.t, p.lan, "bridge", "link", "set", "dev", "to-"+n.name, "isolated", word)
	}
}

// becomes waits until a node has a role.
func (n *node) becomes(role string) {
	n.T.Helper()
	labtest.Eventually(n.T, patience, func(context.Context) error {
		out, err := n.Command("get", "hastate")
		if err == nil && !strings.Contains(out, role) {
			err = fmt.Errorf("%s: want %s:\n%s", n.name, role, out)
		}
		return err
	})
}

// settled waits until one node is MASTER and the other BACKUP, and both agree.
func (p *pair) settled(master *node) {
	p.t.Helper()
	for _, n := range p.nodes {
		role := "BACKUP"
		if n == master {
			role = "MASTER"
		}
		n.becomes(role)
	}
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

// elected waits until one node is MASTER, and returns both.
func (p *pair) elected() (master, backup *node) {
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
	p.settled(master)
	return master, backup
}

// start starts a daemon again.
func (n *node) start() {
	n.T.Helper()
	ctx, cancel := context.WithTimeout(n.T.Context(), 60*time.Second)
	defer cancel()
	if err := n.Start(ctx); err != nil {
		n.T.Fatal(err)
	}
}

// sighting is an answer to a request of an observer.
type sighting struct {
	at  time.Time
	mac string
}

// observer asks for the VIP's MAC address every few milliseconds, as clients without a cache do.
type observer struct {
	t      testing.TB
	fd     int
	done   chan struct{}
	answer chan []sighting
	count  atomic.Int64 // answers
}

const askEvery = 5 * time.Millisecond

// observe starts an observer in the client.
func (p *pair) observe() *observer {
	p.t.Helper()
	o := &observer{t: p.t, done: make(chan struct{}), answer: make(chan []sighting, 1)}
	err := p.client.Do(func() error {
		link, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		arp := uint16(0x0608) // ETH_P_ARP in network order
		if o.fd, err = syscall.Socket(syscall.AF_PACKET, syscall.SOCK_RAW|syscall.SOCK_NONBLOCK, int(arp)); err != nil {
			return err
		}
		if err := syscall.Bind(o.fd, &syscall.SockaddrLinklayer{Protocol: arp, Ifindex: link.Index}); err != nil {
			return err
		}
		go o.run(link.HardwareAddr)
		return nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return o
}

func (o *observer) run(mac net.HardwareAddr) {
	target := netip.MustParseAddr(vip).As4()
	request := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, mac...)
	request = append(request, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1)
	request = append(append(request, mac...), 10, 0, 0, 9, 0, 0, 0, 0, 0, 0)
	request = append(request, target[:]...)
	var seen []sighting
	buffer := make([]byte, 2048)
	for {
		select {
		case <-o.done:
			o.answer <- seen
			return
		default:
		}
		_, _ = syscall.Write(o.fd, request) // a link that is down loses it
		for end := time.Now().Add(askEvery); time.Now().Before(end); time.Sleep(time.Millisecond) {
			for {
				n, err := syscall.Read(o.fd, buffer)
				if err != nil {
					break
				}
				if f := buffer[:n]; n >= 42 && f[21] == 2 && [4]byte(f[28:32]) == target && string(f[0:6]) == string(mac) {
					o.count.Add(1)
					seen = append(seen, sighting{time.Now(), net.HardwareAddr(append([]byte(nil), f[22:28]...)).String()})
				}
			}
		}
	}
}

// view is what an observer saw.
type view struct {
	both   time.Duration // the longest time in which both nodes answered
	silent time.Duration // the longest time without an answer
	last   string        // MAC of the last answer
	took   time.Duration // from the beginning to the first answer of the other node
}

// end stops an observer. began is when something happened.
func (o *observer) end(began time.Time) view {
	o.t.Helper()
	close(o.done)
	seen := <-o.answer
	_ = syscall.Close(o.fd)
	if len(seen) == 0 {
		return view{silent: time.Since(began)}
	}
	var v view
	lastOf := map[string]time.Time{}
	v.last = seen[len(seen)-1].mac
	var overlap time.Time
	first := seen[0].mac
	for i, s := range seen {
		if i > 0 {
			v.silent = max(v.silent, s.at.Sub(seen[i-1].at))
		}
		lastOf[s.mac] = s.at
		answering := 0
		for _, at := range lastOf {
			if s.at.Sub(at) < 4*askEvery {
				answering++
			}
		}
		switch {
		case answering < 2:
			overlap = time.Time{}
		case overlap.IsZero():
			overlap = s.at
		}
		if !overlap.IsZero() {
			v.both = max(v.both, s.at.Sub(overlap))
		}
		if s.mac != first && v.took == 0 {
			v.took = s.at.Sub(began)
		}
	}
	return v
}

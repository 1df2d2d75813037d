package ha_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"loxilb/test/await"
	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// cluster is two nodes that exchange connections, between a router and a server. Routes decide
// which node gets packets:
//
//	client - router - a, b - server
type cluster struct {
	t                      *testing.T
	client, router, server *netnstest.Host
	nodes                  [2]*member
	key                    string
}

// member is a node. It has the addresses 10.1.N.2 and 10.2.N.1, and the same in IPv6.
type member struct {
	*netnstest.Daemon
	host   *netnstest.Host
	number int
}

const clusterServices = `
create lb 20.20.20.1 --tcp=80:80 --endpoints=10.9.0.1:1 --mode=default --name=plain
create lb 20.20.20.2 --tcp=80:80 --endpoints=10.9.0.1:1 --mode=onearm --name=arm
create lb 20.20.20.3 --tcp=80:80 --endpoints=10.9.0.1:1 --mode=fullnat --name=full
create lb 20.20.20.1 --udp=53:53 --endpoints=10.9.0.1:1 --mode=default --name=flow
create lb fd20::1 --tcp=80:80 --endpoints=fd09::1:1 --mode=default --name=plain6
`

func newCluster(t *testing.T) *cluster {
	t.Helper()
	lab := labtest.New(t)
	c := &cluster{t: t, key: filepath.Join(t.TempDir(), "key")}
	must(t, os.WriteFile(c.key, []byte(strings.Repeat("0123456789abcdef", 4)), 0o600))
	host := func(name string) *netnstest.Host {
		h, err := lab.Host(name)
		must(t, err)
		return h
	}
	link := func(a *netnstest.Host, an string, b *netnstest.Host, bn, network string, ahost, bhost int) {
		end := func(h *netnstest.Host, name string, n int) netnstest.End {
			return netnstest.End{Host: h, Interface: name, Addresses: []netip.Prefix{
				netip.MustParsePrefix(fmt.Sprintf("10.%s.%d/24", network, n)), netip.MustParsePrefix(fmt.Sprintf("fd10:%s::%d/64", strings.ReplaceAll(network, ".", ":"), n)),
			}}
		}
		must(t, lab.Link(end(a, an, ahost), end(b, bn, bhost), 0))
	}
	c.client, c.router, c.server = host("client"), host("router"), host("server")
	for _, name := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
		must(t, c.router.Sysctl(name, "1"))
	}
	link(c.client, "eth0", c.router, "client", "0.0", 2, 1)
	rig.MustRun(t, c.client, "ip", "route", "add", "default", "via", "10.0.0.1")
	rig.MustRun(t, c.client, "ip", "-6", "route", "add", "default", "via", "fd10:0:0::1")
	for i, name := range []string{"a", "b"} {
		m := &member{host: host(name), number: i}
		link(c.router, name, m.host, "up", fmt.Sprintf("1.%d", i), 1, 2)
		link(m.host, "server", c.server, name, fmt.Sprintf("2.%d", i), 1, 2)
		rig.MustRun(t, m.host, "ip", "route", "add", "default", "via", fmt.Sprintf("10.1.%d.1", i))
		rig.MustRun(t, m.host, "ip", "-6", "route", "add", "default", "via", fmt.Sprintf("fd10:1:%d::1", i))
		rig.MustRun(t, m.host, "ip", "route", "add", "10.9.0.0/24", "via", fmt.Sprintf("10.2.%d.2", i))
		rig.MustRun(t, m.host, "ip", "-6", "route", "add", "fd09::/64", "via", fmt.Sprintf("fd10:2:%d::2", i))
		c.nodes[i] = m
	}
	link(c.nodes[0].host, "peer", c.nodes[1].host, "peer", "4.0", 1, 2)
	must(t, c.server.AddAddress("lo", netip.MustParsePrefix("10.9.0.1/32")))
	must(t, c.server.AddAddress("lo", netip.MustParsePrefix("fd09::1/128")))
	must(t, c.server.ServeTCP(":80", netnstest.Echo))
	must(t, c.server.ServeUDPEcho("10.9.0.1:53"))
	c.routeTo(0)
	for _, m := range c.nodes {
		c.start(m)
	}
	return c
}

// start starts a node's daemon for the first time, and creates the services.
func (c *cluster) start(m *member) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	var err error
	m.Daemon, err = m.host.StartDaemon(ctx, netnstest.DaemonOptions{Bin: rig.Bin(), Args: []string{
		"--cluster=10.4.0.1,10.4.0.2", "--cluster-node=" + m.host.Name, fmt.Sprintf("--self=%d", m.number), "--cluster-key=" + c.key,
	}})
	must(c.t, err)
	c.t.Cleanup(func() {
		if c.t.Failed() {
			c.t.Logf("log of %s:\n%s", m.host.Name, m.Log())
		}
	})
	for line := range strings.Lines(strings.TrimSpace(clusterServices)) {
		if out, err := m.Command(strings.Fields(line)...); err != nil {
			c.t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
}

// routeTo has the router and the server send packets to a node: those of clients, replies to them,
// and replies to the source addresses of both nodes.
func (c *cluster) routeTo(node int) {
	c.t.Helper()
	for _, r := range []struct {
		at      *netnstest.Host
		to, via string
	}{
		{c.router, "20.20.20.0/24", "10.1.%d.2"}, {c.router, "fd20::/64", "fd10:1:%d::2"},
		{c.server, "10.0.0.0/24", "10.2.%d.1"}, {c.server, "fd10:0:0::/64", "fd10:2:%d::1"},
		{c.server, "10.2.0.1/32", "10.2.%d.1"}, {c.server, "10.2.1.1/32", "10.2.%d.1"}, {c.server, "20.20.20.0/24", "10.2.%d.1"},
	} {
		args := []string{"ip"}
		if strings.Contains(r.to, ":") {
			args = append(args, "-6")
		}
		rig.MustRun(c.t, r.at, append(args, "route", "replace", r.to, "via", fmt.Sprintf(r.via, node))...)
	}
}

// clusterPeers is what GET status/cluster replies with.
type clusterPeers struct {
	Joined bool
	Peers  []struct {
		Node, State, Reason string
		Lag                 float64
		Sent, Received      uint64
		Parked, Dropped     uint64
		Results             []struct {
			Result  string
			Records uint64
		}
	}
}

func (c *cluster) peers(m *member) (out clusterPeers) {
	c.t.Helper()
	text, err := m.Command("get", "cluster", "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(text), &out)
	}
	if err != nil {
		c.t.Fatalf("%v\n%s", err, text)
	}
	return out
}

// await waits until a node has sent all of its connections to the other one.
func (c *cluster) await(m *member) {
	c.t.Helper()
	await.NoError(c.t, patience, func() error {
		now := c.peers(m)
		if len(now.Peers) != 1 || now.Peers[0].State != "up" || now.Peers[0].Lag != 0 {
			return fmt.Errorf("%s: %+v", m.host.Name, now)
		}
		return nil
	})
}

// talker is connections on which clients talk all the time.
type talker struct {
	running sync.WaitGroup
	stop    context.CancelFunc
	said    []*atomic.Uint64
	mu      sync.Mutex
	broken  []string
}

// talk opens connections, and has all of them echo until stopped.
func (c *cluster) talk(each int) *talker {
	ctx, stop := context.WithCancel(c.t.Context())
	k := &talker{stop: stop}
	for _, to := range []string{"tcp 20.20.20.1:80", "tcp 20.20.20.2:80", "tcp 20.20.20.3:80", "tcp [fd20::1]:80", "udp 20.20.20.1:53"} {
		network, address, _ := strings.Cut(to, " ")
		for range each {
			conn, err := c.client.DialContext(ctx, network, address)
			must(c.t, err)
			said := &atomic.Uint64{}
			k.said = append(k.said, said)
			k.running.Go(func() {
				defer conn.Close()
				if err := echoes(ctx, conn, said, network == "udp"); err != nil {
					k.mu.Lock()
					defer k.mu.Unlock()
					k.broken = append(k.broken, fmt.Sprintf("%s from %s: %v", to, conn.LocalAddr(), err))
				}
			})
		}
	}
	return k
}

// echoes exchanges a line after another. Datagrams may be lost, as long as one comes back in time.
func echoes(ctx context.Context, conn net.Conn, said *atomic.Uint64, lossy bool) error {
	const pace, most = 20 * time.Millisecond, 10 * time.Second
	buf := make([]byte, 64)
	last := time.Now()
	for i := 0; ctx.Err() == nil; i++ {
		wait := most
		if lossy {
			wait = 200 * time.Millisecond
		}
		_ = conn.SetDeadline(time.Now().Add(wait))
		if _, err := fmt.Fprintf(conn, "%08d", i); err != nil && !lossy {
			return err
		}
		if _, err := conn.Read(buf); err == nil {
			last = time.Now()
			said.Add(1)
		} else if !lossy || time.Since(last) > most {
			return err
		}
		time.Sleep(pace)
	}
	return nil
}

// goOn checks that all connections go on: each says three more lines.
func (k *talker) goOn(t *testing.T, when string) {
	t.Helper()
	before := make([]uint64, len(k.said))
	for i, s := range k.said {
		before[i] = s.Load()
	}
	await.NoError(t, patience, func() error {
		k.mu.Lock()
		defer k.mu.Unlock()
		if len(k.broken) > 0 {
			t.Fatalf("%s: %d of %d connections are broken: %s", when, len(k.broken), len(k.said), k.broken[0])
		}
		silent := 0
		for i, s := range k.said {
			if s.Load() < before[i]+3 {
				silent++
			}
		}
		if silent > 0 {
			return fmt.Errorf("%s: %d of %d connections are silent", when, silent, len(k.said))
		}
		return nil
	})
}

func (k *talker) end() {
	k.stop()
	k.running.Wait()
}

// TestCluster checks that connections survive the node that they were opened through, in each mode
// and IP version; that they survive its return, with those opened meanwhile; and that a node which
// does not fit is refused.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.nodes[0], c.nodes[1]
	c.await(a)
	c.await(b)
	first := c.talk(10)
	defer first.end()
	first.goOn(t, "through a")
	c.await(a)
	if now := c.peers(b); now.Peers[0].Received < 50 || now.Peers[0].Parked+now.Peers[0].Dropped > 0 {
		t.Errorf("b has got: %+v", now)
	}
	a.Kill()
	c.routeTo(1)
	first.goOn(t, "through b, after a was killed")
	second := c.talk(4)
	defer second.end()
	second.goOn(t, "opened through b")

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must(t, a.Start(ctx))
	c.await(a)
	c.await(b)
	c.routeTo(0)
	first.goOn(t, "through a again")
	second.goOn(t, "opened through b, through a")
	c.refuses()
}

// refuses checks that a node with another key, number or seed is refused with a sentence.
func (c *cluster) refuses() {
	c.t.Helper()
	other := filepath.Join(c.t.TempDir(), "other")
	must(c.t, os.WriteFile(other, []byte(strings.Repeat("fedcba9876543210", 4)), 0o600))
	b := c.nodes[1]
	for _, one := range []struct{ args, want string }{
		{"--cluster-node=b --self=0 --cluster-key=" + c.key, "both have --self=0: give each its own number"},
		{"--cluster-node=a --cluster-key=" + c.key, `both nodes are named "a"`},
		{"--cluster-node=b --self=1 --hash-seed=7 --cluster-key=" + c.key, "have different values of --hash-seed"},
		{"--cluster-node=b --self=1 --cluster-key=" + other, "the peer has another --cluster-key"},
	} {
		b.Stop()
		b.SetArgs(append(strings.Fields(one.args), "--cluster=10.4.0.1,10.4.0.2")...)
		ctx, cancel := context.WithTimeout(c.t.Context(), patience)
		must(c.t, b.Start(ctx))
		cancel()
		await.NoError(c.t, patience, func() error {
			now := c.peers(b)
			if len(now.Peers) != 1 || now.Peers[0].State != "refused" || !strings.Contains(now.Peers[0].Reason, one.want) {
				return fmt.Errorf("%s: %+v, want %q", one.args, now.Peers, one.want)
			}
			return nil
		})
	}
}

package ha_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"loxilb/test/await"
	"loxilb/test/netnstest"
)

// requestRate is the number of connections per second during a drain, each for one request.
const requestRate = 1000

// TestDrainUnderLoad drains a node under load, and then upgrades both nodes as docs/ha.md
// describes.
//
// P82 In mode dsr with hash, no request fails during the drain of a node behind an ECMP router, and
// during the upgrade of both nodes one after the other.
func TestDrainUnderLoad(t *testing.T) {
	p := newPair(t)
	for _, h := range p.servers {
		must(t, h.ServeTCP(":81", answerLines))
	}
	onearm := strings.TrimSuffix(vip, "1") + "2"
	for _, n := range p.nodes {
		n.loxicmd("create lb %s --tcp=81:81 --endpoints=%s:1,%s:1 --mode=dsr --select=hash --bgp", vip, endpointAddr(0), endpointAddr(1))
		n.loxicmd("create lb %s --tcp=81:81 --endpoints=%s:1,%s:1 --mode=onearm --bgp", onearm, endpointAddr(0), endpointAddr(1))
	}
	p.awaitNextHops(vip, 2)
	p.awaitNextHops(onearm, 2)

	directReturn := hold(t, p.client, vip+":81", 100)
	translated := hold(t, p.client, onearm+":81", 100)
	requests := startRequests(p.client, vip+":81")
	await.True(t, patience, "requests", func() bool { return requests.done.Load() > requestRate })
	n := p.nodes[0]
	open := n.connections(onearm)
	n.loxicmd("node drain")
	began := time.Now()
	for !strings.Contains(n.loxicmd("get node"), "drained") {
		if time.Since(began) > patience {
			t.Fatalf("the node is not drained: %s", n.loxicmd("get node"))
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("drained after %v, %d of %d requests failed: %v", time.Since(began).Round(time.Millisecond), requests.failed.Load(), requests.done.Load(), requests.firstErrors())
	if hops := p.nextHops(vip); len(hops) != 1 || hops[0] != p.nodes[1].addr {
		t.Errorf("the router's next hops to the VIP are %v", hops)
	}
	await.NoError(t, patience, func() error { // the router closes the session with a delay
		s, err := p.frr.Neighbor(n.addr)
		if err == nil && s.State == "Established" {
			err = errors.New("the session of a drained node is established")
		}
		return err
	})
	if n := countBroken(directReturn); n != 0 {
		t.Errorf("dsr: %d of %d held connections are broken", n, len(directReturn))
	}
	broken := countBroken(translated)
	t.Logf("onearm: %d of %d held connections are broken; the drained node had %d", broken, len(translated), open)
	if broken > open {
		t.Errorf("onearm: more connections are broken than the drained node had")
	}
	for _, n := range p.nodes { // the first one is drained already
		n.upgrade()
		p.awaitNextHops(vip, 2)
	}
	requests.stop()
	if requests.failed.Load() > 0 {
		t.Errorf("%d of %d requests failed: %v", requests.failed.Load(), requests.done.Load(), requests.firstErrors())
	}
	t.Logf("%d requests", requests.done.Load())
}

// upgrade drains a node, restarts its daemon, and ends the drain.
func (n *node) upgrade() {
	n.t.Helper()
	n.loxicmd("node drain --wait")
	n.Stop()
	short, cancel := context.WithTimeout(n.t.Context(), time.Second) // a drained node is not ready
	defer cancel()
	if err := n.Start(short); err == nil {
		n.t.Error("a drained node is ready")
	}
	await.NoError(n.t, patience, func() error {
		out, err := n.Command("get", "node")
		if err == nil && !strings.Contains(out, "drained since") {
			err = fmt.Errorf("the node is in service after its restart: %s", out)
		}
		return err
	})
	n.loxicmd("node resume")
}

// connections returns how many connections of a VIP a node has. Each has two lines.
func (n *node) connections(vip string) (count int) {
	for line := range strings.Lines(n.loxicmd("get ct")) {
		if strings.Contains(line, vip) {
			count++
		}
	}
	return count / 2
}

// answerLines echoes each line.
func answerLines(c *net.TCPConn) {
	r := bufio.NewReader(c)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		if _, err := io.WriteString(c, line); err != nil {
			return
		}
	}
}

// hold opens connections, which stay open until the test ends.
func hold(t *testing.T, from *netnstest.Host, address string, count int) (list []net.Conn) {
	t.Helper()
	for range count {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		c, err := from.DialContext(ctx, "tcp", address)
		cancel()
		must(t, err)
		t.Cleanup(func() { c.Close() }) //nolint:errcheck // of a test
		must(t, exchange(c, time.Now().Add(patience)))
		list = append(list, c)
	}
	return list
}

// countBroken counts the connections that no longer answer.
func countBroken(list []net.Conn) int {
	var failed atomic.Int64
	var all sync.WaitGroup
	until := time.Now().Add(5 * time.Second)
	for _, c := range list {
		all.Go(func() {
			if exchange(c, until) != nil {
				failed.Add(1)
			}
		})
	}
	all.Wait()
	return int(failed.Load())
}

// exchange sends a line, and returns an error unless the server returns it.
func exchange(c net.Conn, until time.Time) error {
	if err := c.SetDeadline(until); err != nil {
		return err
	}
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		return err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err == nil && line != "hello\n" {
		err = fmt.Errorf("the server answers %q", line)
	}
	return err
}

// requester opens requestRate connections per second, each for one request.
type requester struct {
	done, failed atomic.Int64
	cancel       context.CancelFunc
	all          sync.WaitGroup

	mu   sync.Mutex
	errs []string
}

// startRequests starts the requests from a host. They share threads in its namespace: a thread for
// each connection would cost more than the connection.
func startRequests(from *netnstest.Host, address string) *requester {
	c := &requester{}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	const threads = 20
	for range threads {
		c.all.Go(func() {
			tick := time.NewTicker(threads * time.Second / requestRate)
			defer tick.Stop()
			_ = from.Do(func() error {
				for {
					select {
					case <-ctx.Done():
						return nil
					case <-tick.C:
						c.request(address)
					}
				}
			})
		})
	}
	return c
}

func (c *requester) request(address string) {
	began := time.Now()
	conn, err := net.DialTimeout("tcp", address, patience)
	if err == nil {
		err = exchange(conn, began.Add(patience))
		conn.Close() //nolint:errcheck // of a test
	}
	c.done.Add(1)
	if err != nil {
		c.failed.Add(1)
		c.mu.Lock()
		c.errs = append(c.errs, err.Error())
		c.mu.Unlock()
	}
}

// firstErrors returns the first errors.
func (c *requester) firstErrors() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.errs[:min(len(c.errs), 3)])
}

func (c *requester) stop() {
	c.cancel()
	c.all.Wait()
}

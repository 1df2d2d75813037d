package cluster

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"loxilb/internal/cluster/transport"
	"loxilb/internal/event"
	"loxilb/internal/lb/report"
)

// incompatibleConfigs returns changes to a configuration that make other nodes refuse a node.
func incompatibleConfigs(t *testing.T) map[string]func(*Config) {
	return map[string]func(*Config){
		"key":  func(c *Config) { c.Credentials, _ = transport.KeyFile(keyFile(t, strings.Repeat("x", 32)), "node1") },
		"self": func(c *Config) { c.Hello.Self = 0 },
		"seed": func(c *Config) { c.Hello.Seed = transport.Fingerprint(1) },
		"name": func(c *Config) {
			c.Hello.Node = "node0"
			c.Credentials, _ = transport.KeyFile(keyFile(t, "0123456789abcdef0123456789abcdef"), "node0")
		},
	}
}

// await waits until a channel is closed.
func await(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(testTimeout):
		t.Fatal("the node does not get that far")
	}
}

func isServing(n *Node) bool { return n.HeldReason() == "" }

// TestHeld checks that a node which all serving nodes refuse announces no VIPs, and that the
// serving nodes continue, also in clusters of two. If the serving node is gone, the other one
// replaces it.
func TestHeld(t *testing.T) {
	t.Parallel()
	for name, edit := range incompatibleConfigs(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := newNodes(t, 2)
			good, stop := all.start(0, newTable(), nil)
			await(t, good.Serving())
			events := event.NewHub()
			heard := events.Subscribe(event.KindNode)
			var refused atomic.Bool // as HoldChanged finds it
			var bad *Node
			started := make(chan struct{})
			bad, _ = all.start(1, newTable(), func(c *Config) {
				edit(c)
				c.Events, c.refusalTime = events, time.Second
				c.HoldChanged = func() {
					<-started
					refused.Store(bad.Refused())
				}
			})
			close(started)
			await(t, bad.Joined())
			eventually(t, "nobody learns that the node is refused", refused.Load)
			if !bad.Refused() || !strings.Contains(bad.HeldReason(), "refuses this one: ") || bad.Status().Held == "" {
				t.Errorf("the refused node serves: %q", bad.HeldReason())
			}
			if e, _, err := heard.Next(t.Context()); err != nil || !strings.Contains(e.Body.String(), "VIPs are not announced: ") {
				t.Errorf("event %v: %v", e.Body, err)
			}
			eventually(t, "the serving node does not notice", func() bool {
				p := good.Status().Peers
				return len(p) > 0 && p[0].State == report.PeerRefused
			})
			if !isServing(good) {
				t.Errorf("a refused node has silenced the one that serves: %s", good.HeldReason())
			}
			stop()
			await(t, bad.Serving())
			eventually(t, "nobody learns that the node serves", func() bool { return !refused.Load() })
		})
	}
}

// TestHeldNeighbor checks that a refused node, which waits, keeps no other node from serving: one
// that restarts, and those that start at the same time and refuse each other.
func TestHeldNeighbor(t *testing.T) {
	t.Parallel()
	for name, edit := range incompatibleConfigs(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := newNodes(t, 2)
			good, stop := all.start(0, newTable(), nil)
			await(t, good.Serving())
			bad, _ := all.start(1, newTable(), edit)
			await(t, bad.Joined())
			stop()
			again, _ := all.start(0, newTable(), nil)
			await(t, again.Serving())
			if !bad.Refused() {
				t.Error("the refused node has not waited for the restart")
			}
		})
	}
	all := newNodes(t, 2)
	one, _ := all.start(0, newTable(), nil)
	other, _ := all.start(1, newTable(), incompatibleConfigs(t)["key"])
	await(t, one.Joined())
	await(t, other.Joined())
	eventually(t, "neither node serves", func() bool { return isServing(one) || isServing(other) })
}

// TestHeldByOne checks that a node which one serving node refuses is held back although another one
// accepts it, and that a second node of a name does not take the place of the first.
func TestHeldByOne(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"self", "name"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := newNodes(t, 3)
			first, _ := all.start(0, newTable(), nil)
			await(t, first.Serving())
			second, _ := all.start(1, newTable(), nil)
			await(t, second.Serving())
			bad, _ := all.start(2, newTable(), incompatibleConfigs(t)[name])
			await(t, bad.Joined())
			if !bad.Refused() {
				t.Error("the node serves")
			}
			peers := second.Status().Peers
			keeps := slices.ContainsFunc(peers, func(p report.ClusterPeer) bool { return p.Node == "node0" && p.State == report.PeerUp })
			if !keeps || !isServing(first) {
				t.Errorf("the first node has lost a peer: %+v", peers)
			}
		})
	}
}

// TestHeldImpostor checks that a stranger at a node's address, without the key, silences no node
// that a serving node accepts.
func TestHeldImpostor(t *testing.T) {
	t.Parallel()
	all := newNodes(t, 3)
	stranger, _ := all.start(0, newTable(), incompatibleConfigs(t)["key"])
	await(t, stranger.Serving())
	all.start(1, newTable(), func(c *Config) { c.Peers = all.addresses[1:] })
	node, _ := all.start(2, newTable(), nil)
	await(t, node.Serving())
}

// TestRejoin checks that a node which was cut off from routers and nodes announces VIPs again once
// it has the connections that others have opened meanwhile.
func TestRejoin(t *testing.T) {
	t.Parallel()
	all := newNodes(t, 2)
	one, two := newTable(), newTable()
	_, stop := all.start(0, one, nil)
	node, _ := all.start(1, two, nil)
	await(t, node.Serving())
	node.SessionsChanged(false)
	node.SessionsChanged(true)
	stop()
	eventually(t, "the node does not notice that it is cut off", func() bool { return !isServing(node) })
	one.open(0, 3000, true)
	<-one.events
	all.start(0, one, nil)
	node.SessionsChanged(false)
	eventually(t, "the node does not return", func() bool { return isServing(node) })
	if two.len() < 3000 {
		t.Errorf("the node announces VIPs with %d of 3000 connections", two.len())
	}
	node.SessionsChanged(true)
	node.SessionsChanged(false)
	if !isServing(node) {
		t.Error("a node that has all connections waits for them")
	}
}

// TestRejoinLate checks that a node which was cut off for so long that it has given up the others
// waits for their connections nevertheless: they connect later than it does.
func TestRejoinLate(t *testing.T) {
	t.Parallel()
	s := &source{live: &transport.Conn{}, complete: true}
	if s.leave(s.live); s.isComplete() {
		t.Error("the connections of a node that was given up are complete")
	}
}

// TestGap checks that a node which only lost its routers, while a node has been away for long, does
// not count as cut off: its VIPs would be withdrawn for seconds after each restart of a router.
func TestGap(t *testing.T) {
	t.Parallel()
	current := &source{live: &transport.Conn{}, complete: true}
	left := func(ago time.Duration) *source { return &source{since: time.Now().Add(-ago)} }
	for name, c := range map[string]struct {
		sources map[string]*source
		want    bool
	}{
		"alone":           {nil, false},
		"connected":       {map[string]*source{"a": current}, false},
		"one has left":    {map[string]*source{"a": current, "b": left(time.Minute)}, true},
		"one is away":     {map[string]*source{"a": current, "b": left(time.Hour)}, false},
		"all are away":    {map[string]*source{"a": left(time.Hour)}, true},
		"one is silent":   {map[string]*source{"a": {live: &transport.Conn{}, complete: true, suspected: time.Now()}, "b": left(time.Hour)}, true},
		"one was silent":  {map[string]*source{"a": {live: &transport.Conn{}, complete: true, suspected: time.Now().Add(-time.Minute)}}, false},
		"one has not all": {map[string]*source{"a": {live: &transport.Conn{}}, "b": current}, true},
	} {
		if got := (&Node{sources: c.sources}).hasGap(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestRejoinReconnect checks that the end of a connection that the node renews itself is no answer
// of the peer: it would be taken as gone, and not be waited for.
func TestRejoinReconnect(t *testing.T) {
	t.Parallel()
	all := newNodes(t, 2)
	node, stop := all.start(0, newTable(), nil)
	all.start(1, newTable(), nil)
	eventually(t, "the nodes do not find each other", func() bool { return isUp(node) })
	stop() // nothing connects again
	for _, p := range node.peers {
		if p.isHidden() {
			continue
		}
		p.reconnect(errIsolated)
		p.failed(errIsolated)
		if p.tried || p.absent || p.now.State == report.PeerRefused {
			t.Errorf("after its connection was renewed, the peer is %+v, tried %v, gone %v", p.now, p.tried, p.absent)
		}
	}
}

// TestRerouted checks that the other nodes refuse no unknown segments after a session of a node
// with a router has ended, which then sends them its packets, and while the node stops.
func TestRerouted(t *testing.T) {
	t.Parallel()
	const linger = 3 * time.Second
	all := newNodes(t, 2)
	other := newTable()
	first, stop := all.start(0, newTable(), func(c *Config) { c.lingerTime = linger })
	second, _ := all.start(1, other, nil)
	eventually(t, "the nodes do not find each other", func() bool { return isUp(first) && isUp(second) })
	times := func() int {
		other.mu.Lock()
		defer other.mu.Unlock()
		return other.quieted
	}
	before := times()
	first.SessionsChanged(false)
	eventually(t, "the other node is not notified", func() bool { return times() > before })
	before = times()
	began := time.Now()
	go stop()
	eventually(t, "the other node is not notified that this one stops", func() bool { return times() > before })
	if took := time.Since(began); took >= linger {
		t.Errorf("the other node is notified %v after this one has begun to stop", took)
	}
}

// TestNotRefused checks that Refused stays false for a node that has joined and may announce its
// VIPs.
func TestNotRefused(t *testing.T) {
	t.Parallel()
	n := &Node{hold: hold{reason: "it starts", released: make(chan struct{})}}
	n.join.done = make(chan struct{})
	if n.Refused() {
		t.Error("a node is refused before it has joined")
	}
	n.setHeld("")
	close(n.join.done)
	for range 100 {
		if n.Refused() {
			t.Fatal("a node that may announce its VIPs is refused")
		}
	}
}

// TestServesAfterCut checks that a node which was cut off a moment ago still counts as one that
// announces its VIPs, so a node that it refuses does not begin to announce meanwhile.
func TestServesAfterCut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := &Node{Config: Config{Table: newTable(), refusalTime: refusalTime}, hold: hold{reason: "it starts", released: make(chan struct{})}}
		want := func(when string, joining bool) {
			t.Helper()
			if got := n.hello().Joining; got != joining {
				t.Errorf("%s: the daemon reports that it does not announce VIPs: %v", when, got)
			}
		}
		want("at first", true)
		n.setHeld("it still starts")
		want("while it starts", true)
		n.setHeld("")
		want("once it announces", false)
		n.setHeld("it is cut off")
		time.Sleep(refusalTime - time.Second)
		want("a moment after it was cut off", false)
		time.Sleep(2 * time.Second)
		want("later", true)
		n.setHeld("")
		want("when it is back", false)
	})
}

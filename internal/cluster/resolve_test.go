package cluster

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"loxilb/internal/lb/report"
)

// TestTwoAddresses checks that a node which is configured with two of its addresses is connected by
// one, all the time, and by the other one as soon as the first fails.
func TestTwoAddresses(t *testing.T) {
	t.Parallel()
	all := newNodes(t, 2)
	_, port, _ := net.SplitHostPort(all.addresses[1])
	both := []string{"127.0.0.1:" + port, "127.0.0.2:" + port}
	one, two := newTable(), newTable()
	one.open(0, 10, false)
	first, _ := all.start(0, one, func(c *Config) { c.Peers = both })
	all.start(1, two, func(c *Config) { c.Listen, c.Peers = ":"+port, all.addresses[:1] })
	eventually(t, "the nodes do not find each other", func() bool { return isUp(first) })
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if s := first.Status(); len(s.Peers) != 1 || s.Peers[0].State != report.PeerUp || s.Peers[0].BulkCopies != 1 {
			t.Fatalf("a node with two addresses is shown as %+v", s.Peers)
		}
	}
	connected := first.Status().Peers[0].Address
	first.mu.Lock()
	for _, p := range first.peers {
		if p.address == connected {
			p.cancel() // for good, as if nothing answered there
			p.mu.Lock()
			p.now.State = report.PeerDown
			p.mu.Unlock()
		}
	}
	first.mu.Unlock()
	first.connectNowTo("node1", "")
	eventually(t, "the other address is not used", func() bool {
		for _, p := range first.Status().Peers {
			if p.State == report.PeerUp && p.Address != connected {
				return true
			}
		}
		return false
	})
}

// TestNames checks that a name without an address is reported, delays nothing, and keeps the
// addresses that it had; and that one with other addresses leads to these.
func TestNames(t *testing.T) {
	t.Parallel()
	all := newNodes(t, 3)
	const missing = "missing.invalid:1"
	tables := []*table{newTable(), newTable(), newTable()}
	node, _ := all.start(0, tables[0], func(c *Config) { c.Peers = []string{missing, all.addresses[1]} })
	second, _ := all.start(1, tables[1], nil)
	third, _ := all.start(2, tables[2], nil)
	eventually(t, "the nodes do not find each other", func() bool { return len(second.Status().Peers) == 2 && len(third.Status().Peers) == 2 })
	shown := func(address string, state report.PeerState, reason string) func() bool {
		return func() bool {
			for _, p := range node.Status().Peers {
				if p.Address == address && p.State == state && strings.Contains(p.Reason, reason) {
					return true
				}
			}
			return false
		}
	}
	eventually(t, "one name without an address delays another node", shown(all.addresses[1], report.PeerUp, ""))
	eventually(t, "the name without an address is not shown", shown(missing, report.PeerDown, "its name cannot be resolved: lookup missing.invalid"))
	eventually(t, "the look-up does not end", func() bool {
		node.mu.Lock()
		defer node.mu.Unlock()
		return !node.named[missing].busy
	})
	node.setAddresses(&lookUpResult{missing, all.addresses[2:], nil})
	node.SetNodes([]string{missing})
	eventually(t, "the node of the name is not connected", shown(all.addresses[2], report.PeerUp, ""))
	eventually(t, "no problem is shown", func() bool {
		s := node.Status()
		return len(s.Problems) == 1 && strings.Contains(s.Problems[0], "the name missing.invalid:1 cannot be resolved: lookup missing.invalid") &&
			strings.Contains(s.Problems[0], all.addresses[2]+" stays in use")
	})
	node.setAddresses(&lookUpResult{missing, nil, errors.New("again")})
	if !shown(all.addresses[2], report.PeerUp, "")() {
		t.Error("a node whose name cannot be resolved for a while is lost")
	}
}

// TestForgetSources checks that nodes that come and go under new names are forgotten, and that ends
// are kept for them until they return.
func TestForgetSources(t *testing.T) {
	t.Parallel()
	all := newNodes(t, 2)
	node, _ := all.start(0, newTable(), func(c *Config) {
		c.Peers, c.resolveEvery, c.goneTime = nil, 50*time.Millisecond, 300*time.Millisecond
	})
	_, stop := all.start(1, newTable(), func(c *Config) { c.Peers = all.addresses[:1] })
	eventually(t, "the node is not shown", func() bool {
		s := node.Status()
		return len(s.Peers) == 1 && strings.Contains(s.Peers[0].Reason, "it sends its connections, but its address is not in --cluster")
	})
	stop()
	eventually(t, "the node is not shown as gone", func() bool {
		s := node.Status()
		return len(s.Peers) == 1 && strings.Contains(s.Peers[0].Reason, "it has left")
	})
	eventually(t, "the node is not forgotten", func() bool { return len(node.Status().Peers) == 0 })
	departed := func(count int) func() bool {
		return func() bool {
			node.mu.Lock()
			defer node.mu.Unlock()
			return len(node.departed) == count
		}
	}
	if !departed(1)() {
		t.Error("no ends are kept for the node")
	}
	all.start(1, newTable(), func(c *Config) { c.Peers = all.addresses[:1] })
	eventually(t, "ends are kept for a node that has returned", departed(0))
}

// TestManyAddresses checks that a name with more addresses than can be used is not called
// unresolved.
func TestManyAddresses(t *testing.T) {
	t.Parallel()
	var all []string
	for i := range maxAddresses + 1 {
		all = append(all, fmt.Sprintf("192.0.2.%d:22222", i))
	}
	n := &Node{named: map[string]*name{"many:22222": {}}}
	n.setAddresses(&lookUpResult{name: "many:22222", addresses: all})
	_, problems := n.unresolved()
	want := []string{"the name many:22222 has 65 addresses: the first 64 are used"}
	if !slices.Equal(problems, want) || len(n.named["many:22222"].addresses) != maxAddresses {
		t.Errorf("the problems are %q, want %q and %d addresses", problems, want, maxAddresses)
	}
}

package cluster

import (
	"errors"
	"strings"
	"testing"
	"time"

	"loxilb/internal/cluster/transport"
	"loxilb/internal/lb/report"
)

// TestFaults checks that a node which cannot exchange connections reports the error, and that other
// nodes do not wait for it.
func TestFaults(t *testing.T) {
	t.Parallel()
	all := newNodes(t, 2)
	broken := newTable()
	broken.broken = errors.New("the kernel refuses a program")
	node, _ := all.start(0, broken, nil)
	<-node.Joined()
	if list := node.Status().Problems; len(list) != 1 || list[0] != noExchange+": the kernel refuses a program" {
		t.Errorf("the problems are %q", list)
	}
	other, _ := all.start(1, newTable(), nil)
	<-other.Joined()
	eventually(t, "the node is not found to be absent", func() bool {
		for _, p := range other.Status().Peers {
			if p.State == report.PeerDown && strings.Contains(p.Reason, "connection refused") {
				return true
			}
		}
		return false
	})
}

// TestWatchFault checks that a node reports that it cannot send new connections at once, until it
// can.
func TestWatchFault(t *testing.T) {
	t.Parallel()
	all := newNodes(t, 1)
	f := newTable()
	f.unwatched.Store(true)
	node, _ := all.start(0, f, nil)
	eventually(t, "the fault is not shown", func() bool {
		list := node.Status().Problems
		return len(list) == 1 && list[0] == noWatch+": no memory for a ring"
	})
	f.unwatched.Store(false)
	eventually(t, "the fault is shown for ever", func() bool { return len(node.Status().Problems) == 0 })
}

// TestHashedQuiet checks that services do not forward unknown segments by hash for hashedQuietTime
// after a node has left, and for longer while a node sends all its connections.
func TestHashedQuiet(t *testing.T) {
	t.Parallel()
	f := newTable()
	n := &Node{Config: Config{Table: f}, sources: map[string]*source{}}
	want := func(when string, d time.Duration) {
		t.Helper()
		if n.keepQuiet(); f.hashed != d {
			t.Errorf("%s, segments wait for %v, not %v", when, f.hashed, d)
		}
	}
	want("alone", hashedQuietTime)
	s := &source{live: &transport.Conn{}}
	n.sources["other"] = s
	want("while a node sends all its connections", QuietTime)
	s.complete = true
	want("afterwards", hashedQuietTime)
	s.leave(s.live)
	want("once the node has gone", hashedQuietTime)
}

// TestUnreadTable checks that a node which cannot read its own connections does not blame its peer,
// and names the problem until it has ended, also if it has ends of connections to send.
func TestUnreadTable(t *testing.T) {
	t.Parallel()
	all := newNodes(t, 2)
	f := newTable()
	f.unread.Store(true)
	f.open(0, 10, false)
	node, _ := all.start(0, f, nil)
	node.ends.add([]report.ConnectionCopy{ended(10)})
	other := newTable()
	all.start(1, other, nil)
	why := "no memory for a slice"
	eventually(t, "the failed copy is not shown", func() bool {
		s := node.Status()
		return len(s.Peers) == 1 && strings.Contains(s.Peers[0].Reason, why) && strings.Contains(strings.Join(s.Problems, " "), why)
	})
	if p := node.Status().Peers[0]; p.State == report.PeerRefused {
		t.Errorf("the peer is %s: %s", p.State, p.Reason)
	}
	f.unread.Store(false)
	eventually(t, "the problem does not end", func() bool {
		s := node.Status()
		return other.len() == 10 && s.Peers[0].State == report.PeerUp && len(s.Problems) == 0
	})
}

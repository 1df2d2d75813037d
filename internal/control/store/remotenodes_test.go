package store

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestSharedNodes checks that each node lists all nodes, and when one of them has gone.
func TestSharedNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		remote := newFakeRemote()
		a, b := openNode(t, "a", t.TempDir(), remote, JoinRefuse), openNode(t, "b", t.TempDir(), remote, JoinRefuse)
		b.mustPut(labeled("web", "1"))
		a.want("web=1")
		b.stop()
		time.Sleep(time.Minute)
		a.mustPut(labeled("web", "2"))
		time.Sleep(time.Minute)
		r, _ := a.Remote()
		if len(r.Nodes) != 2 || r.Nodes[0].Name != "a" || !r.Nodes[0].Gone.IsZero() || r.Nodes[1].Name != "b" ||
			time.Since(r.Nodes[1].Gone) < time.Minute || r.Nodes[1].Version != "1.2" {
			t.Errorf("nodes %+v", r.Nodes)
		}
		if !r.Nodes[1].Behind {
			t.Error("node b, which left before the last change, does not count as behind")
		}
	})
}

// TestSharedNodesLimit checks that nodes that have gone do not prevent new ones from being listed,
// and are forgotten after a day.
func TestSharedNodesLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := openNode(t, "a", t.TempDir(), newFakeRemote(), JoinRefuse)
		for i := range 3 * maxNodes {
			path := nodePrefix + fmt.Sprint("pod-", i)
			a.sharing.recordNodes([]RemoteEntry{{Path: path, Value: []byte("{}")}})
			if i < 3*maxNodes-1 {
				time.Sleep(time.Second)
				a.sharing.recordNodes([]RemoteEntry{{Path: path}})
			}
		}
		names := func() (list []string) {
			r, _ := a.Remote()
			for i := range r.Nodes {
				list = append(list, r.Nodes[i].Name)
			}
			return list
		}
		last := fmt.Sprint("pod-", 3*maxNodes-1)
		if list := names(); len(list) != maxNodes || !slices.Contains(list, last) || !slices.Contains(list, "a") {
			t.Errorf("%d nodes are shown: %v", len(list), list)
		}
		time.Sleep(nodeMemory + time.Minute)
		if list := names(); !slices.Equal(list, []string{"a", last}) {
			t.Errorf("a day later, %v are shown", list)
		}
	})
}

// TestSharedNodesCount checks that changes of the number of connections seldom change the node's
// entry.
func TestSharedNodesCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		connections := 0
		sh := &sharing{nodeInfo: func() RemoteNode {
			connections++
			return RemoteNode{Connections: connections}
		}}
		values := map[string]bool{}
		for end := time.Now().Add(time.Hour); time.Now().Before(end); time.Sleep(3 * time.Second) {
			values[string(sh.nodeEntry())] = true
		}
		if n := len(values); n < 2 || n > 1+int(time.Hour/countEvery) {
			t.Errorf("%d values within an hour", n)
		}
	})
}

package store

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestSharedTwin checks that a node notices another one with its name, and does not take its own
// earlier process for one.
func TestSharedTwin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		remote, dir := newFakeRemote(), t.TempDir()
		has := func(n *node, want bool) {
			t.Helper()
			synctest.Wait()
			if r, _ := n.Remote(); r.Twin != want {
				t.Errorf("another node has the name of %s: %v, want %v", n.sharing.node, r.Twin, want)
			}
		}
		a := openNode(t, "a", dir, remote, JoinRefuse)
		openNode(t, "b", t.TempDir(), remote, JoinRefuse)
		has(a, false)
		entry := string(remote.entries[nodePrefix+"a"].Value)
		a.stop()
		remote.set(nodePrefix+"a", entry) // as if it had been killed
		a = openNode(t, "a", dir, remote, JoinRefuse)
		has(a, false)
		twin := openNode(t, "a", t.TempDir(), remote, JoinRefuse)
		has(a, true)
		has(twin, false) // it was the last to write
		twin.stop()
		time.Sleep(twinTime)
		has(a, false)
	})
}

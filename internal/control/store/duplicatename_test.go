package store

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestSharedDuplicateName checks that a node detects another node with its name, and does not
// mistake its own earlier process for one.
func TestSharedDuplicateName(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		remote, dir := newFakeRemote(), t.TempDir()
		has := func(n *node, want bool) {
			t.Helper()
			synctest.Wait()
			if r, _ := n.Remote(); r.DuplicateName != want {
				t.Errorf("another node has the name of %s: %v, want %v", n.sharing.node, r.DuplicateName, want)
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
		duplicate := openNode(t, "a", t.TempDir(), remote, JoinRefuse)
		has(a, true)
		has(duplicate, false) // it was the last to write
		duplicate.stop()
		time.Sleep(duplicateNameTime)
		has(a, false)
	})
}

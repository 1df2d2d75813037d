package store

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestSharedLapse ends the watch of the shared store during a write, so the node gets its own
// change by a complete read, before or after the write returns. The change must include the objects
// of this node alone, and the deadline of its confirmation.
func TestSharedLapse(t *testing.T) {
	t.Parallel()
	pause := func(*fakeRemote) { time.Sleep(checkEvery) }
	for name, after := range map[string]func(*fakeRemote){
		"answered at once": func(*fakeRemote) {},
		"answered late":    pause,
		"another node is faster": func(f *fakeRemote) {
			head := strings.NewReplacer(`"node":"a"`, `"node":"c"`, `"commit":"`, `"commit":"other`)
			f.set(headPath, head.Replace(string(f.entries[headPath].Value)))
			pause(f)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				remote := newFakeRemote()
				a := openNode(t, "a", t.TempDir(), remote, JoinRefuse)
				a.mustPut(labeled("dns", "1"))
				remote.mu.Lock()
				remote.after = func() { after(remote) }
				remote.mu.Unlock()
				deadline := time.Now().Add(time.Minute)
				_, _, err := a.CommitBy(CommitOptions{Owner: "rest", Confirm: deadline}, func(tx *Tx) error {
					return errors.Join(a.items.Put(tx, labeled("web", "1")), a.rules.Put(tx, rule{Number: 7}))
				})
				if err != nil && !errors.Is(err, ErrUnavailable) {
					t.Fatal(err)
				}
				time.Sleep(checkEvery)
				a.want("dns=1 web=1")
				if _, ok := a.rules.Get(a.Snapshot(), "7"); ok != (err == nil) {
					t.Errorf("the object of the node exists: %v, and the change ended with %v", ok, err)
				}
				if w, ok := a.Waiting(); !ok || !w.Confirm.Equal(deadline) {
					t.Errorf("the change waits for confirmation: %v, until %v", ok, w.Confirm)
				}
			})
		})
	}
}

// TestSharedRestored checks that nodes follow a shared store that was restored from a backup, whose
// revisions are lower, whether they have noticed that it was unreachable or not.
func TestSharedRestored(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]time.Duration{"away": 5 * time.Second, "at once": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				remote := newFakeRemote()
				a, b := openNode(t, "a", t.TempDir(), remote, JoinRefuse), openNode(t, "b", t.TempDir(), remote, JoinRefuse)
				a.mustPut(labeled("web", "1"))
				b.want("web=1")
				restore := remote.backup()
				for i := range 9 {
					a.mustPut(labeled("web", fmt.Sprint(i)), labeled("dns", "1"))
				}
				b.want("dns=1 web=8")
				if away > 0 {
					remote.fail(errors.New("away"))
					time.Sleep(away)
				}
				restore()
				remote.fail(nil)
				time.Sleep(3 * time.Second)
				a.want("web=1")
				b.want("web=1")
				a.mustPut(labeled("web", "2"))
				b.want("web=2")
			})
		})
	}
}

// TestSharedRestoredWithTheSameHead checks that changes after a restored backup arrive, although
// the last change of a node was before the backup, and later revisions of other entries were lost.
func TestSharedRestoredWithTheSameHead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		remote := newFakeRemote()
		a, b := openNode(t, "a", t.TempDir(), remote, JoinRefuse), openNode(t, "b", t.TempDir(), remote, JoinRefuse)
		a.mustPut(labeled("web", "1"))
		restore := remote.backup()
		for range 5 {
			remote.set("foreign/entry", "value")
		}
		synctest.Wait()
		restore()
		time.Sleep(2 * time.Second)
		b.mustPut(labeled("web", "2"))
		a.want("web=2")
		b.want("web=2")
	})
}

package store

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestSharedLapse checks that a change whose watch has ended meanwhile, so it arrives with a
// complete read, is complete: with the objects of this node, and the deadline of its confirmation.
// It may have arrived before the shared store answers, or later.
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

package store

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

func deletes(ids ...ID) func(*Tx) error {
	return func(tx *Tx) error {
		for _, id := range ids {
			if err := tx.Delete(id); err != nil {
				return err
			}
		}
		return nil
	}
}

func TestCommitRefuses(t *testing.T) {
	t.Parallel()
	s := openStore(t, "")
	mustCommit(t, s, "rest", put(web()))
	before := dump(s.Snapshot())
	cases := []struct {
		name, owner string
		edit        func(*Tx) error
		is          error
		want        string
	}{
		{"owner of a put", "kube", put(web2()), ErrOwner, `item web belongs to another owner, "rest"`},
		{"owner of a delete", "kube", deletes(web().id()), ErrOwner, `item web belongs to another owner, "rest"`},
		{"nothing to delete", "rest", deletes(dns().id()), ErrNotFound, "item dns does not exist"},
		{"no such kind", "rest", deletes(ID{"rule", "1"}), ErrNotFound, "rule 1 does not exist"},
		{"invalid", "rest", put(item{Label: "x"}), nil, "the item has no name"},
		{"no owner", "", put(dns()), nil, "a commit needs an owner"},
		{"panic", "rest", func(*Tx) error { panic("oops") }, nil, `edit of "rest" panicked: oops`},
		{"half done", "rest", put(dns(), item{}), nil, "the item has no name"},
		{"another version", "rest", func(tx *Tx) error { return tx.Expect(web().id(), 7) }, ErrVersion,
			"item web has changed: it has version 1, and version 7 was expected"},
		{"not there", "rest", func(tx *Tx) error { return tx.Expect(dns().id(), 1) }, ErrVersion,
			"item dns has changed: it does not exist, and version 1 was expected"},
		{"there", "rest", func(tx *Tx) error { return tx.Expect(web().id(), 0) }, ErrVersion,
			"item web has changed: it exists in version 1, and was expected to be missing"},
	}
	for _, c := range cases {
		rev, changed, err := s.Commit(c.owner, c.edit)
		if rev != 0 || changed != nil || err == nil || err.Error() != c.want || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %d, %v, %v, want %s", c.name, rev, changed, err, c.want)
		}
		wantDump(t, s.Snapshot(), before)
	}
	closeStore(t, s)
	if _, _, err := s.Commit("rest", put(dns())); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestCommitOfNothing(t *testing.T) {
	t.Parallel()
	s := openStore(t, t.TempDir())
	mustCommit(t, s, "rest", put(web()))
	mustCommit(t, s, "rest", put(dns()))
	head, size := s.Snapshot(), s.disk.size
	want := dump(head)
	thereAndBack := func(tx *Tx) error {
		if err := put(web2())(tx); err != nil || !tx.Changed() {
			return fmt.Errorf("not changed, %w", err)
		}
		return put(web())(tx)
	}
	for name, edit := range map[string]func(*Tx) error{
		"empty":          func(*Tx) error { return nil },
		"same":           put(web()),
		"there and back": thereAndBack,
		"gone and back":  func(tx *Tx) error { return errors.Join(deletes(web().id())(tx), put(web())(tx)) },
		"come and gone":  func(tx *Tx) error { return errors.Join(put(numbered(1, 1))(tx), deletes(numbered(1, 1).id())(tx)) },
	} {
		rev, changed, err := s.Commit("rest", func(tx *Tx) error {
			err := edit(tx)
			if tx.Changed() {
				t.Errorf("%s: Changed returns true", name)
			}
			return err
		})
		if rev != 2 || changed != nil || err != nil || s.Snapshot() != head || s.disk.size != size {
			t.Errorf("%s: revision %d, %v, %v, journal %d bytes more", name, rev, changed, err, s.disk.size-size)
		}
		wantDump(t, s.Snapshot(), want)
	}
	// an object that a change deletes and creates again keeps its version
	mustCommit(t, s, "rest", func(tx *Tx) error { return errors.Join(thereAndBack(tx), put(numbered(1, 0))(tx)) })
	if meta, _ := s.Snapshot().Meta(web().id()); meta != (Meta{Owner: "rest", Version: 1}) {
		t.Errorf(`got %+v, want Meta{Owner: "rest", Version: 1}`, meta)
	}
}

func TestSnapshotsNeverChange(t *testing.T) {
	t.Parallel()
	s := openStore(t, "")
	mine := web()
	mustCommit(t, s, "rest", put(mine))
	old := s.Snapshot()
	want := dump(old)
	mine.Parts[0] = "other" // the caller's slice is its own
	for i := range 1000 {
		mustCommit(t, s, "rest", put(numbered(i, 1)))
	}
	mustCommit(t, s, "rest", deletes(mine.id()))
	wantDump(t, old, want)
	for range items(old).All(s.Snapshot()) { // a loop may end early
		break
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	s := openStore(t, "")
	changed := s.Changed()
	if _, ids, ok := s.Since(0); !ok || len(ids) != 0 {
		t.Errorf("nothing has changed: %v %v", ids, ok)
	}
	if _, _, ok := s.Since(1); ok {
		t.Error("Since accepts a future revision")
	}
	a, b := numbered(1, 1), numbered(2, 1)
	mustCommit(t, s, "rest", put(b))
	mustCommit(t, s, "rest", put(a))
	mustCommit(t, s, "rest", deletes(b.id()))
	select {
	case <-changed:
	case <-time.After(10 * time.Second):
		t.Fatal("Changed does not signal a change")
	}
	for rev, want := range [][]ID{{a.id(), b.id()}, {a.id(), b.id()}, {b.id()}, nil} {
		snap, ids, ok := s.Since(uint64(rev))
		if !ok || !slices.Equal(ids, want) || snap.Revision() != 3 {
			t.Errorf("since %d: revision %d, %v %v, want %v", rev, snap.Revision(), ids, ok, want)
		}
	}
	select {
	case <-s.Changed():
		t.Error("Changed signals without a change")
	default:
	}
}

func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	var h history
	h.reset(100)
	for i := range uint64(20) {
		h.add(101+i, make([]ID, maxHistoryKeys/10))
	}
	if h.keys > maxHistoryKeys || len(h.commits) != 10 {
		t.Errorf("%d commits, %d keys", len(h.commits), h.keys)
	}
	for rev, want := range map[uint64]bool{99: false, 109: false, 110: true, 119: true, 120: true, 121: false} {
		if _, ok := h.since(rev); ok != want {
			t.Errorf("since %d: %v", rev, ok)
		}
	}
	h.add(121, make([]ID, maxHistoryKeys+1)) // exceeds the limit alone
	if _, ok := h.since(120); ok || len(h.commits) != 0 {
		t.Error("a commit that exceeds the limit is in the history")
	}
	if _, ok := h.since(121); !ok {
		t.Error("the current revision is not in the history")
	}
}

// TestBefore checks that a transaction sees the changes of earlier transactions of the same batch.
func TestBefore(t *testing.T) {
	t.Parallel()
	s := openStore(t, "")
	s.writing.Lock() // both commits wait, and form a batch
	var commits sync.WaitGroup
	var bases [2]uint64
	for i := range bases {
		commits.Go(func() {
			if _, _, err := s.Commit("rest", func(tx *Tx) error {
				bases[i] = tx.Before().Revision()
				return items(tx.base).Put(tx, numbered(i, 1))
			}); err != nil {
				t.Error(err)
			}
		})
		for waits := 0; waits <= i; {
			s.queue.Lock()
			waits = len(s.waiting)
			s.queue.Unlock()
			runtime.Gosched()
		}
	}
	s.writing.Unlock()
	commits.Wait()
	if bases != [2]uint64{0, 1} {
		t.Errorf("the commits are based on revisions %v, want 0 and 1", bases)
	}
}

// TestOverLimit checks that a total over its limit, which an earlier version allowed, can shrink
// and change, but not grow.
func TestOverLimit(t *testing.T) {
	t.Parallel()
	const limit = 10
	for _, c := range []struct {
		before, after int
		refused       bool
	}{{9, 10, false}, {10, 11, true}, {12, 13, true}, {13, 13, false}, {13, 12, false}, {13, 9, false}} {
		err := (&Total{"services", c.before, c.after, limit}).Check()
		if errors.Is(err, ErrLimit) != c.refused {
			t.Errorf("a total that changes from %d to %d, with a limit of %d: %v", c.before, c.after, limit, err)
		}
	}
}

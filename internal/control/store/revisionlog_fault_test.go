package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"loxilb/test/race"
)

// revisionsTrial is a store with revisions on files that fail, and what it has confirmed.
type revisionsTrial struct {
	t     *testing.T
	files *memFiles
	store *Store
	was   map[uint64]string // the state at each confirmed revision
	maybe []uint64          // revisions that may be waiting for confirmation after a crash; 0: none
}

func (x *revisionsTrial) open() {
	if x.store != nil {
		_ = x.store.Close() // ignores the error
	}
	s, err := openMem(x.files)
	if err != nil {
		x.store = nil
		return // the next step tries again
	}
	s.loadRevisions()
	x.store = s
	x.check(s)
}

// check checks that a store, after a start, has the right revision waiting for confirmation, and
// that a rollback to each available revision restores its state.
func (x *revisionsTrial) check(s *Store) {
	x.t.Helper()
	w, _ := s.Waiting()
	if !slices.Contains(x.maybe, w.Number) && x.files.failedCall != "read" {
		x.t.Fatalf("%s at call %d: revision %d waits, and it may be %d\n%s", x.files.failedCall, x.files.failAt, w.Number, x.maybe, x.files.listing())
	}
	head := s.Snapshot().Revision()
	for number := range head {
		_, after, _, err := s.Preview(CommitOptions{Owner: "rest"}, rollBackTo(number))
		if errors.Is(err, ErrForgotten) {
			continue
		}
		if was, known := x.was[number]; err != nil || known && content(after) != was {
			x.t.Fatalf("%s at call %d: rollback from %d to %d (%v): the state is\n%sand was\n%s", x.files.failedCall, x.files.failAt, head, number, err, content(after), was)
		}
	}
}

// does makes a change. If the change fails, the revision that waits for confirmation may be the one
// of before, or the result of waits.
func (x *revisionsTrial) does(change func(s *Store) error, waits func(s *Store) uint64) {
	if x.store == nil {
		x.open()
	}
	before := x.maybe
	if next := waits(x.store); !slices.Contains(x.maybe, next) {
		x.maybe = append(slices.Clone(x.maybe), next)
	}
	if err := change(x.store); err != nil {
		return
	}
	x.maybe = before
	now := x.store.Snapshot()
	x.was[now.Revision()] = content(now)
	w, _ := x.store.Waiting()
	x.maybe = []uint64{w.Number}
}

func (x *revisionsTrial) run() {
	x.was, x.maybe = map[uint64]string{0: ""}, []uint64{0}
	stays := func(s *Store) uint64 { w, _ := s.Waiting(); return w.Number }
	none := func(*Store) uint64 { return 0 }
	put := func(n, v int) func(*Store) error {
		return func(s *Store) error { _, _, err := s.Commit("rest", put(numbered(n, v))); return err }
	}
	confirmed := func(n, v int) {
		x.does(func(s *Store) error {
			_, _, err := s.CommitBy(CommitOptions{Owner: "rest", Confirm: time.Now().Add(time.Hour)}, func(tx *Tx) error { return items(tx.base).Put(tx, numbered(n, v)) })
			return err
		}, func(s *Store) uint64 {
			if w, waits := s.Waiting(); waits {
				return w.Number
			}
			return s.Snapshot().Revision() + 1
		})
	}
	undo := func(s *Store) error {
		w, waits := s.Waiting()
		if !waits {
			return nil
		}
		_, _, err := s.Commit("rest", func(tx *Tx) error { _, err := tx.Undo(w.Number); return err })
		return err
	}
	confirm := func(s *Store) error { _, err := s.Confirm(0); return err }
	x.open()
	x.does(put(1, 1), stays)
	confirmed(2, 1)
	x.does(put(3, 1), stays)
	x.does(undo, none)
	x.does(put(3, 2), stays)
	confirmed(1, 2)
	x.open()
	x.does(put(4, 1), stays)
	x.does(confirm, none)
	x.does(put(4, 2), stays)
	confirmed(1, 3)
	x.does(put(5, 1), stays)
	x.open()
	if x.store == nil {
		x.open()
	}
	x.does(undo, none)
	x.open()
}

// crash starts stores on all states of the disk that a power loss now could leave.
func (x *revisionsTrial) crash() {
	for entries := range len(x.files.pending) + 1 {
		for _, data := range []bool{false, true} {
			s, err := openMem(x.files.after(entries, data))
			if err != nil {
				x.t.Fatal(err)
			}
			s.loadRevisions()
			x.check(s)
			if err := s.Close(); err != nil {
				x.t.Fatal(err)
			}
		}
	}
}

// TestRevisionsWhenCallsFail makes each disk operation fail once, in each way, and simulates a
// power loss before each. It checks that the right revision waits for confirmation afterwards, and
// that a rollback restores the former state.
//
// P5
func TestRevisionsWhenCallsFail(t *testing.T) {
	t.Parallel()
	race.Skip(t)
	clean := &revisionsTrial{t: t, files: newMemFiles()}
	clean.run()
	if n := len(clean.was); n < 10 {
		t.Fatalf("%d revisions", n)
	}
	for at := range clean.files.calls {
		for _, how := range []fault{failBefore, failAfter, tear} {
			x := &revisionsTrial{t: t, files: newMemFiles()}
			x.files.failAt, x.files.fault, x.files.tearPart = at, how, 1
			x.run()
		}
	}
	for part := range 3 {
		x := &revisionsTrial{t: t, files: newMemFiles()}
		x.files.beforeCall = func(_ string, size int, do func(int) error) {
			x.crash()
			if size > 0 {
				if err := do([...]int{1, size / 2, size - 1}[part]); err != nil {
					t.Fatal(err)
				}
				x.crash()
			}
		}
		x.run()
		if fmt.Sprint(x.maybe) != "[0]" {
			t.Errorf("%v waits at the end", x.maybe)
		}
	}
}

// TestRevertWithoutRevisions checks that a failed batch without revisions does not remove the lines
// of earlier batches.
func TestRevertWithoutRevisions(t *testing.T) {
	t.Parallel()
	files := newMemFiles()
	s, err := openMem(files)
	if err != nil {
		t.Fatal(err)
	}
	s.loadRevisions()
	if _, _, err := s.Commit("rest", func(tx *Tx) error { return items(tx.base).Put(tx, numbered(1, 1)) }); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(s.disk.path, revisionsName)
	before, err := files.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.revisions.write(); err != nil {
		t.Fatal(err)
	}
	s.revisions.revert()
	if after, err := files.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("the file has %q, %v, want %q", after, err, before)
	}
}

package store

import (
	"errors"
	"fmt"
	"runtime/debug"

	"loxilb/internal/lb"
)

// errAbandoned is what a request has until it is served: an edit that ends its goroutine ends the batch.
var errAbandoned = errors.New("the commit was abandoned")

// request is one call of Commit. Whoever gets the writing lock serves all that wait, with one write and one
// fdatasync: a disk that takes 0.3 ms for it does not limit concurrent callers to 3,000 commits a second.
type request struct {
	owner    string
	edit     func(*Tx) error
	done     bool
	revision uint64
	err      error
}

// Commit runs edit and makes all of its changes, or none if it fails. It returns the revision that has them,
// which is on disk by then; if they change nothing, that is the current revision (Tx.Changed tells which).
// Services belong to the owner that put them, and no other may change them.
//
// Edits run one after the other, not always on the goroutine of their caller, and may not call Commit.
func (s *Store) Commit(owner string, edit func(*Tx) error) (revision uint64, err error) {
	r := &request{owner: owner, edit: edit, err: errAbandoned}
	s.queue.Lock()
	s.waiting = append(s.waiting, r)
	s.queue.Unlock()

	s.writing.Lock()
	defer s.writing.Unlock()
	if !r.done {
		s.serve()
	}
	return r.revision, r.err
}

// serve commits all waiting requests. The caller holds the writing lock.
func (s *Store) serve() {
	s.queue.Lock()
	batch := s.waiting
	s.waiting = nil
	s.queue.Unlock()

	before := s.Snapshot()
	head := before
	var changes []*change
	for _, r := range batch {
		next, c, err := s.run(r, head)
		if err == nil {
			head = next
			r.revision = next.revision
		}
		if c != nil {
			changes = append(changes, c)
		}
		r.done, r.err = true, err
	}
	if len(changes) == 0 {
		return
	}
	if err := s.persist(before, changes); err != nil {
		for _, r := range batch {
			if r.err == nil {
				r.revision, r.err = 0, err
			}
		}
		return
	}
	s.publish(head, changes)
	if s.disk != nil {
		s.disk.compactIfDue(head)
	}
}

// run makes the snapshot that follows head by the edit of r.
func (s *Store) run(r *request, head *Snapshot) (next *Snapshot, c *change, err error) {
	if s.closed {
		return nil, nil, ErrClosed
	}
	if r.owner == "" {
		return nil, nil, errors.New("a commit needs an owner")
	}
	tx := begin(head, r.owner)
	if err := s.protect(tx, r.edit); err != nil {
		return nil, nil, err
	}
	next, c = tx.finish()
	if err := checkTotals(head, next); err != nil {
		return nil, nil, err
	}
	if c != nil {
		if err := whole(next, c); err != nil {
			return nil, nil, err
		}
	}
	return next, c, nil
}

// checkTotals refuses growth past a limit, and never shrinking. Files are read without it: what was allowed once
// can be mended.
func checkTotals(before, after *Snapshot) error {
	if n := after.Len(); n > lb.MaxServices && n > before.Len() {
		return fmt.Errorf("a total of %d services %w of %d", n, ErrLimit, lb.MaxServices)
	}
	if n := after.endpoints; n > lb.MaxEndpoints && n > before.endpoints {
		return fmt.Errorf("a total of %d endpoints %w of %d", n, ErrLimit, lb.MaxEndpoints)
	}
	if n := after.sources; n > lb.MaxSources && n > before.sources {
		return fmt.Errorf("a total of %d sources %w of %d", n, ErrLimit, lb.MaxSources)
	}
	return nil
}

// protect turns a panic of an edit into its error: it must not fall on the caller whose goroutine ran it.
func (s *Store) protect(tx *Tx, edit func(*Tx) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("edit panicked", "owner", tx.owner, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("edit of %q panicked: %v", tx.owner, p)
		}
	}()
	return edit(tx)
}

// persist writes the changes that follow snapshot before, one line each.
func (s *Store) persist(before *Snapshot, changes []*change) error {
	if s.disk == nil {
		return nil
	}
	var lines []byte
	for _, c := range changes {
		line, err := encodeLine(recordOf(c))
		if err != nil {
			return fmt.Errorf("write revision %d: %w", c.revision, err)
		}
		lines = append(lines, line...)
	}
	if err := s.disk.append(before.revision, lines); err != nil {
		return fmt.Errorf("write the state, which stays at revision %d: %w", before.revision, err)
	}
	return nil
}

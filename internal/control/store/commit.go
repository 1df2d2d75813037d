package store

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"
)

// errAbandoned is a request's error until it is served: an edit that ends its goroutine ends the
// batch.
var errAbandoned = errors.New("the commit was abandoned")

// request is one call of Commit. The holder of the writing lock serves all waiting requests, with
// one write and one fdatasync: a disk that takes 0.3 ms for it does not limit concurrent callers to
// 3,000 commits per second.
type request struct {
	CommitOptions
	edit     func(*Tx) error
	done     bool
	revision uint64
	changed  []ID
	change   *change // nil: none
	err      error
}

// CommitOptions is the author of a commit, and its conditions.
type CommitOptions struct {
	Owner string // of objects that are put
	Author
	Confirm time.Time // deadline of the confirmation, after which the caller of Waiting rolls the change back; zero: none is needed
}

// Commit runs edit and makes all of its changes, or none if it fails. It returns the revision with
// the changes, which is on disk by then, and the created, changed or deleted objects, ordered by
// kind and key as text. Without an effective change it makes no revision and returns the current
// one without objects. Objects belong to their owner; no other owner may change them.
//
// Edits run in sequence, not always on the goroutine of their caller, and may not call Commit. One
// may run twice.
func (s *Store) Commit(owner string, edit func(*Tx) error) (revision uint64, changed []ID, err error) {
	return s.CommitBy(CommitOptions{Owner: owner}, edit)
}

// CommitBy is Commit with more about the author, and conditions.
func (s *Store) CommitBy(by CommitOptions, edit func(*Tx) error) (revision uint64, changed []ID, err error) {
	if s.sharing != nil {
		return s.commitShared(by, edit)
	}
	return s.commitHere(by, edit)
}

// commitHere commits to this node's store.
func (s *Store) commitHere(by CommitOptions, edit func(*Tx) error) (revision uint64, changed []ID, err error) {
	r := &request{CommitOptions: by, edit: edit, err: errAbandoned}
	s.queue.Lock()
	s.waiting = append(s.waiting, r)
	s.queue.Unlock()

	s.writing.Lock()
	defer s.writing.Unlock()
	if !r.done {
		s.serve()
	}
	return r.revision, r.changed, r.err
}

// serve commits all waiting requests. The caller holds the writing lock.
func (s *Store) serve() {
	s.queue.Lock()
	batch := s.waiting
	s.waiting = nil
	s.queue.Unlock()

	before := s.Snapshot()
	head, changes := s.runAll(batch, before)
	if len(changes) == 0 {
		return
	}
	err := s.persist(before, changes)
	if err != nil {
		head, changes = s.keepUrgent(batch, before, err)
	}
	if len(changes) > 0 {
		s.publish(head, changes)
	}
	if err == nil && s.disk != nil {
		s.disk.compactIfDue(head)
	}
}

// runAll runs requests in sequence, and returns the state that follows, and the changes.
func (s *Store) runAll(batch []*request, head *Snapshot) (*Snapshot, []*change) {
	var changes []*change
	for _, r := range batch {
		next, c, err := s.run(r, head)
		r.done, r.change, r.err = true, c, err
		if err != nil {
			continue
		}
		head, r.revision = next, next.revision
		if c == nil {
			continue
		}
		r.changed = c.ids
		changes = append(changes, c)
		if s.revisions != nil {
			s.revisions.pending = append(s.revisions.pending, c.remembered)
		}
	}
	return head, changes
}

// run makes the snapshot that follows head by the edit of r.
func (s *Store) run(r *request, head *Snapshot) (next *Snapshot, c *change, err error) {
	if s.closed {
		return nil, nil, ErrClosed
	}
	if r.Owner == "" {
		return nil, nil, errors.New("a commit needs an owner")
	}
	tx := begin(head, r.Owner)
	tx.revisions = s.revisions
	if err := s.protect(tx, r.edit); err != nil {
		return nil, nil, err
	}
	next, c = tx.finish()
	if c == nil {
		return next, nil, nil
	}
	for _, t := range head.tables {
		if err := t.check(head, next, c.ids); err != nil {
			return nil, nil, err
		}
	}
	if s.revisions == nil {
		return next, c, nil
	}
	if w := s.revisions.waiting(); w != nil && w.Number != c.resolves && !r.Confirm.IsZero() {
		return nil, nil, fmt.Errorf("revision %d %w until %s: confirm it or go back first", w.Number, ErrPending, w.Confirm.Format(time.RFC3339))
	}
	if c.remembered, err = revisionOf(head.layout, c, r.CommitOptions); err != nil {
		return nil, nil, fmt.Errorf("remember revision %d: %w", c.revision, err)
	}
	return next, c, nil
}

// Preview runs edit like Commit, and changes nothing: it returns the current state, the resulting
// one, and the objects that differ.
func (s *Store) Preview(by CommitOptions, edit func(*Tx) error) (before, after *Snapshot, changed []ID, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	before = s.Snapshot()
	after, c, err := s.run(&request{CommitOptions: by, edit: edit}, before)
	if c != nil {
		changed = c.ids
	}
	return before, after, changed, err
}

// protect converts a panic of an edit to its error: it must not affect the caller whose goroutine
// ran it.
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
	records := make([]*commitRecord, len(changes))
	for i, c := range changes {
		var err error
		if records[i], err = recordOf(before.layout, c); err != nil {
			return fmt.Errorf("write revision %d: %w", c.revision, err)
		}
	}
	written := func() error { return nil }
	if s.revisions != nil {
		var err error
		if written, err = s.revisions.write(); err != nil {
			return err
		}
	}
	err := s.disk.append(before, records)
	if err := written(); err != nil {
		s.revisions.reopenLater(err)
	}
	if err != nil {
		if s.revisions != nil {
			s.revisions.revert()
		}
		return fmt.Errorf("write the state, which stays at revision %d: %w", before.revision, err)
	}
	s.unwritten.Worked()
	return nil
}

// maxHistoryKeys bounds the memory for changes, in keys of all commits together (60 bytes each). A
// reader further behind compares everything, which by then is about as cheap.
const maxHistoryKeys = 65536

// history remembers which keys the last commits changed.
type history struct {
	first   uint64 // the revision of commits[0]
	commits [][]ID // one for each revision, without gaps
	keys    int    // in commits
}

func (h *history) reset(current uint64) { *h = history{first: current + 1} }

func (h *history) add(revision uint64, keys []ID) {
	if revision != h.first+uint64(len(h.commits)) {
		h.reset(revision - 1)
	}
	h.commits = append(h.commits, keys)
	h.keys += len(keys)
	for h.keys > maxHistoryKeys {
		h.keys -= len(h.commits[0])
		h.commits[0] = nil
		h.commits = h.commits[1:]
		h.first++
	}
}

// since returns the keys changed after rev, ordered, each once; ok is false if it is unknown.
func (h *history) since(rev uint64) (keys []ID, ok bool) {
	current := h.first + uint64(len(h.commits)) - 1
	if rev+1 < h.first || rev > current {
		return nil, false
	}
	for _, k := range h.commits[rev+1-h.first:] {
		keys = append(keys, k...)
	}
	slices.SortFunc(keys, compareIDs)
	return slices.Compact(keys), true
}

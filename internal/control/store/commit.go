package store

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"
)

// errAbandoned is a request's error until it is served. It remains if an edit ends its goroutine
// (runtime.Goexit), and thereby the batch.
var errAbandoned = errors.New("the commit was abandoned")

// request is a call of Commit. The holder of the writing lock serves all waiting requests, with one
// write and one fdatasync. So concurrent callers can exceed the 3,000 commits per second of a disk
// whose fdatasync takes 0.3 ms.
type request struct {
	CommitOptions
	edit     func(*Tx) error
	done     bool
	revision uint64
	changed  []ID
	change   *change // nil: nothing has changed
	err      error
}

// CommitOptions are the author and the conditions of a commit.
type CommitOptions struct {
	Owner string // of the objects that the commit puts
	Author
	// Confirm is the deadline for the confirmation of the change; zero: it needs none. After
	// the deadline, the caller of Waiting rolls the change back.
	Confirm time.Time
}

// Commit runs edit and makes all of its changes, or none if it fails. It returns the revision with
// the changes, which is on disk by then, and the created, changed and deleted objects, ordered by
// kind and key. If nothing has changed, it returns the current revision and no objects. Only its
// owner may change an object.
//
// Edits run one after the other, not always in the goroutine of their caller, and must not call
// Commit. An edit may run twice.
func (s *Store) Commit(owner string, edit func(*Tx) error) (revision uint64, changed []ID, err error) {
	return s.CommitBy(CommitOptions{Owner: owner}, edit)
}

// CommitBy is Commit with an author and conditions.
func (s *Store) CommitBy(by CommitOptions, edit func(*Tx) error) (revision uint64, changed []ID, err error) {
	if s.sharing != nil {
		return s.commitShared(by, edit)
	}
	return s.commitHere(by, edit)
}

// commitHere commits to the local store.
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

// runAll runs requests one after the other, and returns the next state and the changes.
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

// run returns the snapshot that the edit of r makes from head.
func (s *Store) run(r *request, head *Snapshot) (next *Snapshot, c *change, err error) {
	if s.closed {
		return nil, nil, ErrClosed
	}
	if r.Owner == "" {
		return nil, nil, errors.New("a commit needs an owner")
	}
	tx := newTx(head, r.Owner)
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
		return nil, nil, fmt.Errorf("revision %d %w until %s: confirm it or roll it back first", w.Number, ErrPending, w.Confirm.Format(time.RFC3339))
	}
	if c.remembered, err = revisionOf(head.layout, c, r.CommitOptions); err != nil {
		return nil, nil, fmt.Errorf("remember revision %d: %w", c.revision, err)
	}
	return next, c, nil
}

// Preview runs edit like Commit, but changes nothing. It returns the current state, the state after
// the edit, and the objects that differ.
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

// protect converts a panic of an edit to its error. The panic must not reach another caller whose
// goroutine has run the edit.
func (s *Store) protect(tx *Tx, edit func(*Tx) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("edit panicked", "owner", tx.owner, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("edit of %q panicked: %v", tx.owner, p)
		}
	}()
	return edit(tx)
}

// persist writes changes that follow a snapshot to disk, one line each.
func (s *Store) persist(before *Snapshot, changes []*change) error {
	if s.disk == nil {
		return nil
	}
	records := make([]*commitRecord, len(changes))
	for i, c := range changes {
		var err error
		if records[i], err = commitRecordOf(before.layout, c); err != nil {
			return fmt.Errorf("write revision %d: %w", c.revision, err)
		}
	}
	if err := s.disk.catchUp(before); err != nil {
		return fmt.Errorf("write the state, which stays at revision %d: %w", before.revision, err)
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
	s.urgentWrites.Worked()
	return nil
}

// maxHistoryKeys is the maximum number of keys in a history (60 bytes each). A reader that is
// further behind must compare all objects, which costs about as much.
const maxHistoryKeys = 65536

// history records the keys that the last commits have changed.
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

// since returns the keys that were changed after rev, ordered, each once; ok is false if rev is not
// in the history.
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

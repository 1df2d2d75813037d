// Package status tracks which version of each object the data path has, and why it does not have
// the desired one. The statuses are only in memory: reconcilers write them again after each start.
// REST, loxicmd and metrics read them.
package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// ID identifies an object, such as "service", "10.0.0.1:80/tcp". Desired objects have the ID of the
// store; other objects, such as an interface or the next hops, have kinds of their own.
type ID struct{ Kind, Key string }

func (id ID) String() string { return id.Kind + " " + id.Key }

// compare orders by kind, then by key.
func (id ID) compare(o ID) int {
	return cmp.Or(cmp.Compare(id.Kind, o.Kind), cmp.Compare(id.Key, o.Key))
}

// State is the state of an object.
type State string

// The states.
const (
	Pending State = "pending" // the desired version has not been tried yet
	Applied State = "applied" // the data path has the desired version
	Failed  State = "failed"  // the last try failed; it will be retried
)

// Status is the status of one object.
type Status struct {
	ID
	Desired  uint64    // desired version
	Applied  uint64    // version in the data path; 0: none
	Removed  bool      // deleted by users, but not removed yet
	Since    time.Time // when State last changed
	Err      error     // of the last try; nil unless Failed
	Attempts int       // consecutive failed tries
	Next     time.Time // when the next try is due; zero unless Failed
}

// State returns the state.
func (s *Status) State() State {
	switch {
	case s.Err != nil:
		return Failed
	case s.Applied == s.Desired && !s.Removed:
		return Applied
	}
	return Pending
}

// entry is a Status without rarely used members: there may be 65,536 entries, nearly all of them
// applied.
type entry struct {
	desired, applied uint64
	since            int64 // Unix nanoseconds
	failure          *failure
	removed          bool
}

type failure struct {
	err      error
	version  uint64 // the version that was tried; 0: the removal
	outdated bool   // a later desired version has not been tried yet
	attempts int
	next     time.Time
}

// Table holds the statuses. Its methods are safe for concurrent use.
type Table struct {
	mu      sync.Mutex
	entries map[ID]*entry
	failed  map[ID]struct{}
	sources []func() []Status // statuses that are computed when they are read
	seen    map[string]uint64 // by kind: entries has all changes up to this version
	changed chan struct{}     // closed when any object is decided; nil: no waiters
	last    time.Time         // when an object was last applied
	unknown []ID              // objects with waiters but without an entry: Seen decides whether they were deleted
	now     func() time.Time
}

// NewTable returns an empty table.
func NewTable() *Table {
	return &Table{entries: map[ID]*entry{}, failed: map[ID]struct{}{}, seen: map[string]uint64{}, now: time.Now}
}

// Include adds a source of statuses that are computed when they are read. A status that was written
// to the table takes precedence. Call it before the table is in use.
func (t *Table) Include(source func() []Status) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sources = append(t.sources, source)
}

// Follow includes the status of an object that retries by itself. lastError returns its current
// error and when that began; nil: the object is applied.
func (t *Table) Follow(id ID, lastError func() (since time.Time, err error)) {
	t.Include(func() []Status {
		s := Status{ID: id, Desired: 1, Applied: 1}
		if since, err := lastError(); err != nil {
			s.Since, s.Err, s.Attempts = since, err, 1
		}
		return []Status{s}
	})
}

// included yields the statuses of Include and Follow, except those of objects in the table.
func (t *Table) included(yield func(Status) bool) {
	for _, source := range t.sources {
		for _, s := range source() {
			if _, exists := t.entries[s.ID]; !exists && !yield(s) {
				return
			}
		}
	}
}

// Get returns the status of one object.
func (t *Table) Get(id ID) (Status, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, ok := t.entries[id]; ok {
		return e.status(id), true
	}
	for s := range t.included {
		if s.ID == id {
			return s, true
		}
	}
	return Status{}, false
}

func (e *entry) status(id ID) Status {
	s := Status{ID: id, Desired: e.desired, Applied: e.applied, Removed: e.removed, Since: time.Unix(0, e.since)}
	if f := e.failure; f != nil {
		s.Err, s.Attempts, s.Next = f.err, f.attempts, f.next
	}
	return s
}

// List returns the statuses of a kind ("": all), or only failed ones, ordered by kind and key.
func (t *Table) List(kind string, failedOnly bool) []Status {
	return t.list(failedOnly, func(id ID) bool { return kind == "" || kind == id.Kind })
}

// Named returns the statuses of the objects that one of the names identifies, as "key" or "kind
// key", in the order of List.
func (t *Table) Named(names []string) []Status {
	keys, ids := map[string]bool{}, map[ID]bool{}
	for _, name := range names {
		keys[name] = true
		if kind, key, ok := strings.Cut(name, " "); ok {
			ids[ID{kind, key}] = true
		}
	}
	return t.list(false, func(id ID) bool { return keys[id.Key] || ids[id] })
}

func (t *Table) list(failedOnly bool, selected func(ID) bool) (out []Status) {
	t.mu.Lock()
	defer t.mu.Unlock()
	add := func(id ID) {
		if e, ok := t.entries[id]; ok && selected(id) {
			out = append(out, e.status(id))
		}
	}
	if failedOnly {
		for id := range t.failed {
			add(id)
		}
	} else {
		for id := range t.entries {
			add(id)
		}
	}
	for s := range t.included {
		if selected(s.ID) && (s.Err != nil || !failedOnly) {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b Status) int { return a.ID.compare(b.ID) })
	return out
}

// Counts returns the number of objects by kind and state.
func (t *Table) Counts() map[string]map[State]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := map[string]map[State]int{}
	count := func(s Status) {
		if out[s.Kind] == nil {
			out[s.Kind] = map[State]int{}
		}
		out[s.Kind][s.State()]++
	}
	for id, e := range t.entries {
		count(e.status(id))
	}
	for s := range t.included {
		count(s)
	}
	return out
}

// Error reports which objects of a request failed.
type Error struct{ Failures []Status }

func (e *Error) Error() string {
	const shown = 3
	var text string
	for i, s := range e.Failures {
		if i == shown {
			return fmt.Sprintf("%s; and %d more", text, len(e.Failures)-shown)
		}
		if i > 0 {
			text += "; "
		}
		text += fmt.Sprintf("%s: %v", s.ID, s.Err)
	}
	return text
}

// temporary is an error that is expected to end by itself within moments.
type temporary interface{ Temporary() bool }

func isTemporary(err error) bool {
	var t temporary
	return errors.As(err, &t) && t.Temporary()
}

// ErrWaiting reports that a wait ended before all objects were tried.
var ErrWaiting = errors.New("the data path is still processing it")

// Wait blocks until each of the objects is applied in this version or a later one, is removed, or
// has failed. An *Error lists the failed objects. An error whose method Temporary returns true does
// not end the wait. When ctx ends, Wait returns an *Error with such errors, or else ErrWaiting.
func (t *Table) Wait(ctx context.Context, version uint64, ids []ID) error {
	w := wait{table: t, version: version, left: ids}
	for {
		failures, changed := w.failuresOrWait()
		if changed == nil {
			return failed(failures)
		}
		select {
		case <-ctx.Done():
			if failures := w.failures(); len(failures) > 0 {
				return failed(failures)
			}
			return fmt.Errorf("%w (%w)", ErrWaiting, ctx.Err())
		case <-changed:
		}
	}
}

func failed(list []Status) error {
	if len(list) > 0 {
		return &Error{list}
	}
	return nil
}

// wait is the state of a call of Wait. After each change, it continues at the first undecided
// object, so each of 10,000 objects is checked about once.
type wait struct {
	table   *Table
	version uint64
	left    []ID // not checked yet
	failed  []ID // perhaps temporarily
}

// failuresOrWait returns the objects that failed, or, while one is undecided, a channel that is
// closed after a change.
func (w *wait) failuresOrWait() (failures []Status, changed <-chan struct{}) {
	t := w.table
	t.mu.Lock()
	defer t.mu.Unlock()
	for ; len(w.left) > 0; w.left = w.left[1:] {
		switch done, failure := t.outcome(w.left[0], w.version); {
		case failure != nil:
			w.failed = append(w.failed, w.left[0])
		case !done:
			return nil, t.awaitChange(w.left[0])
		}
	}
	for _, id := range w.failed {
		done, failure := t.outcome(id, w.version)
		if !done {
			return nil, t.awaitChange(id)
		}
		if failure != nil {
			failures = append(failures, *failure)
		}
	}
	return failures, nil
}

// failures returns the objects that have failed so far, even if others are pending.
func (w *wait) failures() (list []Status) {
	t := w.table
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range slices.Concat(w.failed, w.left) {
		if _, failure := t.outcome(id, w.version); failure != nil {
			list = append(list, *failure)
		}
	}
	return list
}

// awaitChange returns a channel that is closed when any object is decided, such as this one. The
// caller holds mu.
func (t *Table) awaitChange(id ID) <-chan struct{} {
	if t.changed == nil {
		t.changed = make(chan struct{})
		t.unknown = t.unknown[:0]
	}
	if t.entries[id] == nil {
		t.unknown = append(t.unknown, id)
	}
	return t.changed
}

// outcome reports whether an object is decided in a version, and how it failed; nil: it has not.
func (t *Table) outcome(id ID, version uint64) (done bool, failure *Status) {
	e := t.entries[id]
	switch {
	case e == nil:
		return t.seen[id.Kind] >= version, nil // removed, because of this request or another
	case e.failure != nil && e.failure.decides(version, e.removed && t.seen[id.Kind] >= version):
		s := e.status(id)
		return !isTemporary(e.failure.err), &s
	}
	return e.applied >= version && !e.removed, nil
}

// decides reports whether the failure is the outcome of the request that created a version. removed
// reports that the request deleted the object.
func (f *failure) decides(version uint64, removed bool) bool {
	return f.version >= version || removed && f.version == 0 && !f.outdated
}

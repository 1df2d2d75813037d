// Package status tracks each object: which version of it the data path has, and why not the desired
// one. It lives in memory and is rebuilt at each start. Reconcilers write it; REST, loxicmd and
// metrics read it.
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

// ID identifies an object: "service", "10.0.0.1:80/tcp". Desired objects have their ID in the
// store; other objects (an interface, the next hops) have their own kinds.
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
	Pending State = "pending" // the desired version was not tried yet
	Applied State = "applied" // the data path has the desired version
	Failed  State = "failed"  // it was tried and failed; it is retried
)

// Status is the status of one object.
type Status struct {
	ID
	Desired  uint64    // desired version
	Applied  uint64    // version in the data path; 0: none
	Removed  bool      // deleted by users, but not removed yet
	Since    time.Time // when State last changed
	Err      error     // of the last try; nil unless Failed
	Attempts int       // that failed in a row
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

// entry is a Status without rarely used members: there may be 65,536 of them, nearly all applied.
type entry struct {
	desired, applied uint64
	since            int64 // Unix nanoseconds
	failure          *failure
	removed          bool
}

type failure struct {
	err      error
	version  uint64 // tried version; 0: the removal
	outdated bool   // a later desired version was not tried yet
	attempts int
	next     time.Time
}

// Table holds the statuses. All methods may be called from many goroutines.
type Table struct {
	mu      sync.Mutex
	entries map[ID]*entry
	failed  map[ID]struct{}
	sources []func() []Status // of statuses that are made when they are read
	seen    map[string]uint64 // by kind: all changes up to this version are in entries
	changed chan struct{}     // closed when the outcome is known; nil: no waiters
	last    time.Time         // when the last object was applied
	unknown []ID              // waited for, without an entry: Seen decides whether they were deleted
	now     func() time.Time
}

// NewTable returns an empty table.
func NewTable() *Table {
	return &Table{entries: map[ID]*entry{}, failed: map[ID]struct{}{}, seen: map[string]uint64{}, now: time.Now}
}

// Include adds statuses that are made when they are read. An object with a status in the table
// keeps that one. Call it before the table is in use.
func (t *Table) Include(source func() []Status) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sources = append(t.sources, source)
}

// Follow includes the status of something that retries by itself: lastError returns its current
// error and since when; nil: it works.
func (t *Table) Follow(id ID, lastError func() (since time.Time, err error)) {
	t.Include(func() []Status {
		s := Status{ID: id, Desired: 1, Applied: 1}
		if since, err := lastError(); err != nil {
			s.Since, s.Err, s.Attempts = since, err, 1
		}
		return []Status{s}
	})
}

// included yields the statuses of the sources of Follow.
func (t *Table) included(yield func(Status) bool) {
	for _, source := range t.sources {
		for _, s := range source() {
			if _, have := t.entries[s.ID]; !have && !yield(s) {
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

// Named returns the statuses of objects with one of these keys, or of "kind key", in the order of
// List.
func (t *Table) Named(names []string) []Status {
	keys, ids := map[string]bool{}, map[ID]bool{}
	for _, name := range names {
		keys[name] = true
		if kind, key, both := strings.Cut(name, " "); both {
			ids[ID{kind, key}] = true
		}
	}
	return t.list(false, func(id ID) bool { return keys[id.Key] || ids[id] })
}

func (t *Table) list(failedOnly bool, chosen func(ID) bool) (out []Status) {
	t.mu.Lock()
	defer t.mu.Unlock()
	add := func(id ID) {
		if e, ok := t.entries[id]; ok && chosen(id) {
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
		if chosen(s.ID) && (s.Err != nil || !failedOnly) {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b Status) int { return a.ID.compare(b.ID) })
	return out
}

// Counts returns the number of objects by kind and state, for the metrics.
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

// Error reports which objects of a request failed, in whole sentences.
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

// temporary is an error that is expected to pass by itself within moments.
type temporary interface{ Temporary() bool }

func isTemporary(err error) bool {
	var t temporary
	return errors.As(err, &t) && t.Temporary()
}

// ErrWaiting reports that a wait ended before the objects were tried.
var ErrWaiting = errors.New("the data path is still processing it")

// Wait blocks until each of the objects was applied in this version or a later one, or was removed
// if it is deleted. *Error lists failed objects. A temporary error (Temporary) is not a failure
// until ctx ends. If ctx ends first, Wait returns the temporary errors, or ErrWaiting.
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

// wait is a call of Wait. It checks only up to the first undecided object, so each of 10,000
// objects is checked about once, not all of them after each pass.
type wait struct {
	table        *Table
	version      uint64
	left, failed []ID // not checked yet; failed, perhaps temporarily
}

// failuresOrWait returns which objects failed, or, if there is something to wait for, a channel
// that signals changes.
func (w *wait) failuresOrWait() (failures []Status, changed <-chan struct{}) {
	t := w.table
	t.mu.Lock()
	defer t.mu.Unlock()
	for ; len(w.left) > 0; w.left = w.left[1:] {
		switch done, failure := t.outcome(w.left[0], w.version); {
		case failure != nil:
			w.failed = append(w.failed, w.left[0])
		case !done:
			return nil, t.change(w.left[0])
		}
	}
	for _, id := range w.failed {
		done, failure := t.outcome(id, w.version)
		if !done {
			return nil, t.change(id)
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

// change returns a channel that is closed when an object is decided, perhaps this one. The caller
// holds mu.
func (t *Table) change(id ID) <-chan struct{} {
	if t.changed == nil {
		t.changed = make(chan struct{})
		t.unknown = t.unknown[:0]
	}
	if t.entries[id] == nil {
		t.unknown = append(t.unknown, id)
	}
	return t.changed
}

// outcome reports whether the object is decided in a version, and how it failed.
func (t *Table) outcome(id ID, version uint64) (done bool, failure *Status) {
	e := t.entries[id]
	switch {
	case e == nil:
		return t.seen[id.Kind] >= version, nil // gone, by this request or another
	case e.failure != nil && e.failure.decides(version, e.removed && t.seen[id.Kind] >= version):
		s := e.status(id)
		return !isTemporary(e.failure.err), &s
	}
	return e.applied >= version && !e.removed, nil
}

// decides reports whether it answers a request that made a version, or, for a deletion, removed it.
func (f *failure) decides(version uint64, removed bool) bool {
	return f.version >= version || removed && f.version == 0 && !f.outdated
}

package status

import "time"

// Update writes many statuses: waiters check them once at its end, not after each status.
func (t *Table) Update(write func(*Writer)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := Writer{table: t}
	write(&w)
	if w.decided && t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}

// Writer writes statuses during a call of Update. The methods of Table with the same names write
// one status.
type Writer struct {
	table   *Table
	decided bool // an object was decided: notify waiters
}

// Want records the desired version of an object, or its deletion (version 0).
func (w *Writer) Want(id ID, version uint64) {
	t := w.table
	e := t.entries[id]
	switch {
	case e == nil && version == 0:
		return
	case e == nil:
		e = &entry{since: t.now().UnixNano()}
		t.entries[id] = e
	case e.desired == version && !e.removed:
		return
	}
	if e.failure == nil && e.applied == e.desired {
		e.since = t.now().UnixNano()
	}
	if e.failure != nil {
		e.failure.outdated = true
	}
	e.removed = version == 0
	if version != 0 {
		e.desired = version
	}
}

// Seen records that Want was called for all changes of a kind up to a version.
func (w *Writer) Seen(kind string, version uint64) {
	t := w.table
	t.seen[kind] = version
	for _, id := range t.unknown {
		w.decided = w.decided || t.entries[id] == nil
	}
}

// Succeeded records that the data path has an object in a version, and reports whether that has
// changed its status. For a removed object, call Forget.
func (w *Writer) Succeeded(id ID, version uint64) (changed bool) {
	t := w.table
	e := t.entries[id]
	if e == nil {
		return false
	}
	changed = e.failure != nil || e.applied != version || e.removed
	e.failure, e.applied = nil, version
	delete(t.failed, id)
	if changed {
		t.last = t.now()
		e.since = t.last.UnixNano()
		w.decided = true
	}
	return changed
}

// Failed records that applying an object in a version failed, and when the next try is due. It
// reports whether the failure is new: the object had not failed before, or had failed for another
// reason.
func (w *Writer) Failed(id ID, version uint64, err error, next time.Time) (isNew bool) {
	t := w.table
	e := t.entries[id]
	if e == nil {
		e = &entry{desired: version}
		t.entries[id] = e
	}
	f := &failure{err: err, version: version, attempts: 1, next: next}
	if old := e.failure; old != nil {
		f.attempts += old.attempts
		isNew = old.err.Error() != err.Error()
	} else {
		e.since = t.now().UnixNano()
		isNew = true
	}
	e.failure = f
	t.failed[id] = struct{}{}
	w.decided = true
	return isNew
}

// Forget deletes the status of an object that the data path has removed, and reports whether there
// was one.
func (w *Writer) Forget(id ID) (existed bool) {
	_, existed = w.table.entries[id]
	delete(w.table.entries, id)
	delete(w.table.failed, id)
	w.decided = w.decided || existed
	return existed
}

// LastApplied returns when the data path last applied a change; zero: never.
func (t *Table) LastApplied() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}

// Want is Writer.Want for one object.
func (t *Table) Want(id ID, version uint64) { t.Update(func(w *Writer) { w.Want(id, version) }) }

// Seen is Writer.Seen.
func (t *Table) Seen(kind string, version uint64) {
	t.Update(func(w *Writer) { w.Seen(kind, version) })
}

// Succeeded is Writer.Succeeded for one object.
func (t *Table) Succeeded(id ID, version uint64) (changed bool) {
	t.Update(func(w *Writer) { changed = w.Succeeded(id, version) })
	return changed
}

// Failed is Writer.Failed for one object.
func (t *Table) Failed(id ID, version uint64, err error, next time.Time) (isNew bool) {
	t.Update(func(w *Writer) { isNew = w.Failed(id, version, err, next) })
	return isNew
}

// Forget is Writer.Forget for one object.
func (t *Table) Forget(id ID) { t.Update(func(w *Writer) { w.Forget(id) }) }

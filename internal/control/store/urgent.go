package store

import (
	"slices"
	"time"
)

// keepUrgent runs the requests of a batch that only change urgent objects, although the batch could
// not be written, and fails the others. It returns the state after the former, and their changes.
func (s *Store) keepUrgent(batch []*request, before *Snapshot, cause error) (*Snapshot, []*change) {
	if s.revisions != nil {
		s.revisions.pending = nil
	}
	var urgent []*request
	for _, r := range batch {
		switch {
		case r.err != nil:
		case r.change != nil && r.Confirm.IsZero() && before.onlyUrgent(r.change):
			urgent = append(urgent, r)
		default:
			r.revision, r.changed, r.err = 0, nil, cause
		}
	}
	head, changes := s.runAll(urgent, before)
	if len(changes) == 0 {
		return before, nil
	}
	if s.revisions != nil {
		s.revisions.close() // the next commit rewrites the file
	}
	if !s.disk.behind {
		s.disk.behind = true
		s.writeLater(cause)
	}
	return head, changes
}

// onlyUrgent reports whether a change only affects urgent objects.
func (l *layout) onlyUrgent(c *change) bool {
	return c.resolves == 0 && !slices.ContainsFunc(c.ids, func(id ID) bool { return !slices.Contains(l.urgent, id.Kind) })
}

// writeLater writes the state later, and retries until that or another commit succeeds. The caller
// holds the writing lock.
func (s *Store) writeLater(cause error) {
	time.AfterFunc(s.urgentWrites.Failed(cause), func() {
		s.writing.Lock()
		defer s.writing.Unlock()
		if s.closed {
			return
		}
		if err := s.disk.catchUp(s.Snapshot()); err != nil {
			s.writeLater(err)
			return
		}
		s.urgentWrites.Worked()
	})
}

// Unwritten returns why urgent changes are not stored, and since when; nil: all are stored.
func (s *Store) Unwritten() (since time.Time, err error) { return s.urgentWrites.LastError() }

// catchUp writes the whole state if changes could not be written before. After each step, the
// directory contains a state with at least the changes that it had.
func (d *disk) catchUp(now *Snapshot) error {
	if d.pendingTidy != nil {
		if err := d.tidy(d.pendingTidy); err != nil {
			return err
		}
		d.pendingTidy = nil
	}
	if !d.behind {
		return nil
	}
	d.background.Wait() // otherwise an older snapshot could replace this one
	version, err := d.writeSnapshot(now)
	if err != nil {
		return err
	}
	if err := d.startOver(now.revision, max(version, d.version)); err != nil {
		return err
	}
	d.behind = false
	return nil
}

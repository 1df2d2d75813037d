package store

import (
	"slices"
	"time"
)

// keepUrgent makes the urgent changes of a batch although the disk has refused the batch, and
// refuses the others. The changes follow the previous state.
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
		s.revisions.close() // the next commit writes all that is remembered
	}
	if !s.disk.behind {
		s.disk.behind = true
		s.writeLater(cause)
	}
	return head, changes
}

// onlyUrgent reports whether a change is of urgent objects only.
func (l *layout) onlyUrgent(c *change) bool {
	return c.resolves == 0 && !slices.ContainsFunc(c.ids, func(id ID) bool { return !slices.Contains(l.urgent, id.Kind) })
}

// writeLater retries a write that the disk has refused, until it succeeds or another commit does.
// The caller holds the writing lock.
func (s *Store) writeLater(cause error) {
	time.AfterFunc(s.unwritten.Failed(cause), func() {
		s.writing.Lock()
		defer s.writing.Unlock()
		if s.closed {
			return
		}
		if err := s.disk.catchUp(s.Snapshot()); err != nil {
			s.writeLater(err)
			return
		}
		s.unwritten.Worked()
	})
}

// Unwritten returns why urgent changes are not stored, and since when; nil: all are.
func (s *Store) Unwritten() (since time.Time, err error) { return s.unwritten.LastError() }

// catchUp writes the whole state, since any number of changes may not have been written. After
// every step the directory still loads, with at least the former changes.
func (d *disk) catchUp(now *Snapshot) error {
	if d.pendingTidy != nil {
		if err := d.clean(d.pendingTidy); err != nil {
			return err
		}
		d.pendingTidy = nil
	}
	if !d.behind {
		return nil
	}
	d.background.Wait() // for an older snapshot, which would replace this one
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

package store

import (
	"slices"
	"time"
)

// keepUrgent makes those changes of a batch that hold although the disk has refused it, and refuses
// the others. They follow the state before.
func (s *Store) keepUrgent(batch []*request, before *Snapshot, cause error) (*Snapshot, []*change) {
	if s.past != nil {
		s.past.pending = nil
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
	if s.past != nil {
		s.past.close() // the next commit writes all that is remembered
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

// writeLater tries again to write what the disk has refused, until it succeeds or another commit
// does. The caller holds the writing lock.
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

// catchUp writes what could not be written when it was read or changed. The state is written whole:
// there may be any number of changes. After every step the directory loads the same, or more.
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

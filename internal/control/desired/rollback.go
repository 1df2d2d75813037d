package desired

import (
	"context"
	"log/slog"
	"time"

	"loxilb/internal/control/store"
	"loxilb/internal/host/monotime"
)

// pollInterval is the interval at which the deadline of a pending revision is checked.
const pollInterval = time.Second

// Descriptions of rollback revisions: of this version, and of earlier ones.
const (
	rollbackDescription       = "automatic rollback"
	formerRollbackDescription = "undo of what nobody confirmed"
)

// maxRetryPause bounds the pause before a refused rollback is retried. A limit may have refused it,
// for example.
const maxRetryPause = time.Minute

// Outcome is the state of a revision that needs confirmation.
type Outcome int

// The outcomes.
const (
	Waiting  Outcome = iota
	Resolved         // confirmed, or undone by a user
	RolledBack
)

// RollBackWhenDue rolls back revisions that are not confirmed in time, until ctx ends. The state
// stores the deadline, so it also holds after the process was killed.
func (s *State) RollBackWhenDue(ctx context.Context, log *slog.Logger, notify func(*store.Revision, Outcome)) {
	var current store.Revision // the pending revision
	var deadline time.Time     // its deadline, monotonic
	pause := pollInterval / 10 // before a refused rollback is retried
	for ctx.Err() == nil {
		changed := s.Changed()
		pending, ok := s.Waiting()
		if current.Number != 0 && pending.Number != current.Number {
			notify(&current, Resolved)
			current = store.Revision{}
		}
		if !ok {
			select {
			case <-ctx.Done():
			case <-changed:
			}
			continue
		}
		if pending.Number != current.Number {
			current, deadline = pending, time.Now().Add(pending.TimeLeft(time.Now()))
			notify(&current, Waiting)
		}
		wait := min(max(time.Until(deadline), 0), pollInterval)
		if wait == 0 {
			if s.rollBack(pending.Number, log) {
				notify(&current, RolledBack)
				current, pause = store.Revision{}, pollInterval/10
				continue
			}
			wait, pause = pause, min(2*pause, maxRetryPause)
		}
		monotime.Sleep(ctx, wait)
	}
}

// RollBackIfDue rolls back a revision whose deadline passed before the start.
func (s *State) RollBackIfDue(log *slog.Logger) {
	if w, waits := s.Waiting(); waits && w.TimeLeft(time.Now()) <= 0 {
		s.rollBack(w.Number, log)
	}
}

// LastRollback returns the revision that rolled back the last revision that needed confirmation. It
// returns false if that one was confirmed, or is no longer stored.
func (s *State) LastRollback() (store.Revision, bool) {
	for _, r := range s.Revisions() { // the last one first
		switch {
		case r.Confirmed:
			return store.Revision{}, false
		case r.Doing == rollbackDescription, r.Doing == formerRollbackDescription:
			return r, true
		}
	}
	return store.Revision{}, false
}

// rollBack rolls a revision back. It returns false if it must be retried.
func (s *State) rollBack(number uint64, log *slog.Logger) bool {
	var conflicts []store.ID
	by := store.CommitOptions{Owner: "loxilb", Author: store.Author{Who: "loxilb", Doing: rollbackDescription}}
	revision, changed, err := s.CommitBy(by, func(tx *store.Tx) (err error) {
		if w, waits := s.Waiting(); !waits || w.Number != number {
			return nil // confirmed just now
		}
		conflicts, err = tx.Undo(number)
		return err
	})
	if err == nil && len(changed) == 0 {
		if w, waits := s.Waiting(); waits && w.Number == number {
			_, err = s.Confirm(number) // nothing to undo: later revisions have changed all of its objects
		}
	}
	if err != nil {
		log.Error("automatic rollback failed, and is tried again", "revision", number, "error", err)
		return false
	}
	log.Warn("automatic rollback: a change was not confirmed in time", "revision", number, "undone_by", revision, "objects", len(changed), "left", len(conflicts))
	return true
}

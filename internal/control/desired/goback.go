package desired

import (
	"context"
	"log/slog"
	"time"

	"loxilb/internal/control/store"
)

// lookAgain is how often it is looked whether what waits for confirmation is still waiting.
const lookAgain = time.Second

// What revisions are called that undo others: now, and by versions before.
const (
	undoing       = "automatic rollback"
	formerUndoing = "undo of what nobody confirmed"
)

// slowest is how rarely an undo that is refused, by a limit say, is tried again.
const slowest = time.Minute

// Fate is what becomes of a revision that is to be confirmed.
type Fate int

// The fates.
const (
	Waits Fate = iota
	Stays
	TakenBack
)

// GoBackWhenDue undoes revisions that nobody confirms in time, until ctx ends. What the deadline is, the state knows: a process that was
// killed meanwhile changes nothing about it.
func (s *State) GoBackWhenDue(ctx context.Context, log *slog.Logger, tell func(*store.Revision, Fate)) {
	var of store.Revision   // that waits
	var deadline time.Time  // of it, by the clock that nobody sets
	pause := lookAgain / 10 // before an undo is tried again that was refused
	for ctx.Err() == nil {
		changed := s.Changed()
		w, waits := s.Waiting()
		if of.Number != 0 && w.Number != of.Number {
			tell(&of, Stays)
			of = store.Revision{}
		}
		if !waits {
			select {
			case <-ctx.Done():
			case <-changed:
			}
			continue
		}
		if w.Number != of.Number {
			of, deadline = w, time.Now().Add(left(&w, time.Now()))
			tell(&of, Waits)
		}
		wait := min(max(time.Until(deadline), 0), lookAgain)
		if wait == 0 {
			if s.goBack(w.Number, log) {
				tell(&of, TakenBack)
				of, pause = store.Revision{}, lookAgain/10
				continue
			}
			wait, pause = pause, min(2*pause, slowest)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// GoBackIfDue undoes a revision whose time was over before the start.
func (s *State) GoBackIfDue(log *slog.Logger) {
	if w, waits := s.Waiting(); waits && left(&w, time.Now()) <= 0 {
		s.goBack(w.Number, log)
	}
}

// Undone is the revision that has undone the last one that waited for confirmation. false: that one
// was confirmed, or is not remembered.
func (s *State) Undone() (store.Revision, bool) {
	for _, r := range s.Revisions() { // the last one first
		switch {
		case r.Confirmed:
			return store.Revision{}, false
		case r.Doing == undoing, r.Doing == formerUndoing:
			return r, true
		}
	}
	return store.Revision{}, false
}

// left is how long a revision still waits: no longer than it was to wait from the first, as a clock has it that was not yet set when the
// machine started.
func left(w *store.Revision, now time.Time) time.Duration {
	return min(w.Confirm.Sub(now.Round(0)), w.Confirm.Sub(w.Time))
}

// goBack is false when it is to be tried again.
func (s *State) goBack(number uint64, log *slog.Logger) bool {
	var left []store.ID
	by := store.By{Owner: "loxilb", Author: store.Author{Who: "loxilb", Doing: undoing}}
	revision, changed, err := s.CommitBy(by, func(tx *store.Tx) (err error) {
		if w, waits := s.Waiting(); !waits || w.Number != number {
			return nil // confirmed in the last moment
		}
		left, err = tx.Undo(number)
		return err
	})
	if err == nil && len(changed) == 0 {
		if w, waits := s.Waiting(); waits && w.Number == number {
			_, err = s.Confirm(number) // others have changed all of it since
		}
	}
	if err != nil {
		log.Error("automatic rollback failed, and is tried again", "revision", number, "error", err)
		return false
	}
	log.Warn("automatic rollback: a change was not confirmed in time", "revision", number, "undone_by", revision, "objects", len(changed), "left", len(left))
	return true
}

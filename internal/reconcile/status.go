package reconcile

import (
	"context"
	"errors"
	"fmt"

	"loxilb/internal/datapath"
)

// Applied is the last revision that is in the data path whole, and why a later one is not.
func (r *Reconciler) Applied() (revision uint64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.applied, r.err
}

// Wait blocks until the revision is in the data path, or was tried and failed (the error says why; it will be
// tried again), or ctx ends. Want of rows is no failure yet: whoever replaces nearly all that fits has to wait until what
// was removed has given its rows back.
func (r *Reconciler) Wait(ctx context.Context, revision uint64) error {
	for {
		r.mu.Lock()
		passes, applied, tried, err, moved := r.passes, r.applied, r.tried, r.err, r.moved
		r.mu.Unlock()
		if passes > 0 && applied >= revision {
			return nil
		}
		if passes > 0 && tried >= revision && err != nil && !errors.Is(err, datapath.ErrFull) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("revision %d is stored, but not yet in the data path: %w", revision, ctx.Err())
		case <-moved:
		}
	}
}

// report notes the outcome of a pass.
func (r *Reconciler) report(revision uint64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.passes++
	r.tried, r.err = revision, err
	if err == nil {
		r.applied = revision
	}
	close(r.moved)
	r.moved = make(chan struct{})
}

package balancer

import (
	"context"
	"errors"
	"net"
	"time"
)

// missedPolls is the number of consecutive unanswered polls during a request after which a balancer
// counts as dead. A balancer that applies thousands of services may be late once.
const missedPolls = 2

// hangAfter is how long a poll is not answered when the balancer's node is asked for a connection:
// a node that is dead does not answer that either. It is longer than a connection may take.
const hangAfter = pollTimeout * 3 / 5

// errHangs ends a poll of a balancer whose node accepts connections meanwhile. Its daemon has
// stopped, and its kernel balances.
var errHangs = errors.New("the balancer's node accepts connections, and its daemon does not answer")

// poll asks for the revision.
func (m *member) poll(ctx context.Context) (revision uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	accepts := make(chan bool, 1)
	late := time.AfterFunc(hangAfter, func() { accepts <- m.Client.accepts(ctx) })
	revision, err = m.Client.Revision(ctx)
	inTime := late.Stop()
	switch {
	case err == nil:
		m.mu.Lock()
		m.answered = time.Now()
		m.mu.Unlock()
	case !inTime && isTimeout(err) && <-accepts:
		err = errors.Join(errHangs, err)
	}
	return revision, err
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// errAway ends a request to a balancer that no longer answers polls.
var errAway = errors.New("the balancer answers neither a request nor polls")

// polled returns a context for requests that may take long. It ends when the balancer no longer
// answers polls meanwhile: the death of a MASTER must not be noticed half a minute late because it
// was just getting services.
func (m *member) polled(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		missed := 0
		for tick := time.NewTicker(pollInterval); ; {
			select {
			case <-tick.C:
			case <-ctx.Done():
				tick.Stop()
				return
			}
			switch _, err := m.poll(ctx); {
			case err == nil, isRefusal(err) && !errors.Is(err, errHangs):
				missed = 0
			default:
				if missed++; missed < missedPolls {
					continue
				}
				why := errAway
				if errors.Is(err, errHangs) {
					why = errHangs
				}
				cancel(why)
			}
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}

// judge classifies the failure of a request to a balancer that has just answered a poll: if the
// request took too long and polls did not, the balancer is busy.
func judge(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case err == nil:
		return nil
	case errors.Is(cause, errAway), errors.Is(cause, errHangs):
		return errors.Join(cause, err)
	case ctx.Err() == nil && isTimeout(err):
		return busyError{err}
	}
	return err
}

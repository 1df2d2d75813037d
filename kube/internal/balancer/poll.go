package balancer

import (
	"context"
	"errors"
	"net"
	"time"
)

// missedPolls is the number of consecutive unanswered polls after which a balancer counts as dead
// during a request. While it applies thousands of services, one answer may be late.
const missedPolls = 2

// hangAfter is the age of an unanswered poll at which a connection tests whether the node is alive.
// A poll's own connection may take less than this.
const hangAfter = pollTimeout * 3 / 5

// errHangs is the failure of a poll of a balancer whose node accepts connections: its daemon hangs,
// and its kernel balances.
var errHangs = errors.New("the balancer's node accepts connections, but its daemon does not answer")

// poll returns the balancer's revision. It is also the test whether the balancer is alive.
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

// errNoAnswer is why a request to a balancer that no longer answers polls was canceled.
var errNoAnswer = errors.New("the balancer answers neither a request nor polls")

// withPolls returns a context for requests that may take long. It is canceled when the balancer no
// longer answers polls: otherwise the death of a MASTER would be noticed half a minute late if it
// was just receiving services.
func (m *member) withPolls(ctx context.Context) (context.Context, context.CancelFunc) {
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
			case err == nil, isAliveError(err) && !errors.Is(err, errHangs):
				missed = 0
			default:
				if missed++; missed < missedPolls {
					continue
				}
				why := errNoAnswer
				if errors.Is(err, errHangs) {
					why = errHangs
				}
				cancel(why)
			}
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}

// classify returns the error of requests with a context of withPolls, with its cause. A balancer
// whose request took too long while it answered polls is busy.
func classify(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case err == nil:
		return nil
	case errors.Is(cause, errNoAnswer), errors.Is(cause, errHangs):
		return errors.Join(cause, err)
	case ctx.Err() == nil && isTimeout(err):
		return busyError{err}
	}
	return err
}

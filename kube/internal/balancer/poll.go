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
			poll, stop := context.WithTimeout(ctx, pollTimeout)
			_, err := m.Client.Revision(poll)
			stop()
			if err == nil || isRefusal(err) {
				missed = 0
			} else if missed++; missed == missedPolls {
				cancel(errAway)
			}
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}

// judge classifies the failure of a request to a balancer that has just answered a poll: if the
// request took too long and polls did not, the balancer is busy.
func judge(ctx context.Context, err error) error {
	var timeout net.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), errAway):
		return errors.Join(errAway, err)
	case ctx.Err() == nil && errors.As(err, &timeout) && timeout.Timeout():
		return busyError{err}
	}
	return err
}

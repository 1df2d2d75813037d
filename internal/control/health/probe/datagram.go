package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"
)

// datagram sends the request by UDP, and waits for a datagram that contains the response. Without a
// response, it succeeds unless the port is reported unreachable before the end.
type datagram struct {
	q       Question
	refused *atomic.Pointer[time.Time] // time of the last ICMP error that was accepted
}

func newDatagram(q Question) *datagram { return &datagram{q, &atomic.Pointer[time.Time]{}} }

const (
	// doubt is the least time after an ICMP error for which silence is no evidence. Hosts limit
	// ICMP errors (Linux: about one per second and peer), so a dead endpoint leaves most
	// frequent probes unanswered.
	doubt = 10 * time.Second
	// An ICMP error that proves nothing must be repeated for this many datagrams from other
	// ports, at once, within this time each. An attacker who tries all ports does not hit them.
	confirmations = 2
	confirmation  = 100 * time.Millisecond
)

// errUnconfirmed is the result of ICMP errors that may be forged.
var errUnconfirmed = fmt.Errorf("an unconfirmed ICMP error, which %w", ErrUndecided)

func (d *datagram) Probe(ctx context.Context) (Answer, error) {
	start := time.Now()
	i, err := d.send(ctx, d.q.Probe.Request)
	if err != nil {
		return Answer{}, shorten(d.q, err)
	}
	defer i.Close()
	defer interrupt(ctx, i)()
	want, strange, unconfirmed := []byte(d.q.Probe.Response), false, false
	for {
		answer, err := i.next()
		var timeout net.Error
		switch over := errors.As(err, &timeout) && timeout.Timeout(); {
		case err == nil && bytes.Contains(answer, want):
			return Answer{What: "answered", Delay: time.Since(start)}, nil
		case err == nil:
			strange = true // a valid answer may follow
		case errors.Is(err, errHint):
			if !unconfirmed && d.confirmed(ctx, i) {
				return d.unreachable(i.hint)
			}
			unconfirmed = true
		case over && strange:
			return Answer{}, fmt.Errorf("the answer has no %q in it", want)
		case over && len(want) == 0 && errors.Is(ctx.Err(), context.DeadlineExceeded):
			if unconfirmed {
				return Answer{}, errUnconfirmed
			}
			return d.timeoutResult()
		case !over:
			return d.unreachable(err)
		default:
			return Answer{}, shorten(d.q, err)
		}
	}
}

// unreachable reports the endpoint as unreachable, and remembers it.
func (d *datagram) unreachable(err error) (Answer, error) {
	now := time.Now()
	d.refused.Store(&now)
	return Answer{}, shorten(d.q, err)
}

// confirmed reports whether datagrams from other ports get the same ICMP error, which proves that
// the first one was not forged.
func (d *datagram) confirmed(ctx context.Context, i *inquiry) bool {
	wait := confirmation
	if end, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(end)/(confirmations+1))
	}
	ctx, cancel := context.WithTimeout(ctx, confirmations*wait)
	defer cancel()
	for range confirmations {
		switch proof, hint := d.retry(ctx, wait); {
		case proof:
			return true
		case !hint:
			return false
		}
	}
	i.readErrors()
	return i.hints == 1
}

// retry probes from another, secret port.
func (d *datagram) retry(ctx context.Context, wait time.Duration) (proof, hint bool) {
	i, err := d.send(ctx, "")
	if err != nil {
		return false, false
	}
	defer i.Close()
	if err := i.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return false, false
	}
	_, err = i.next()
	return i.proof != nil, errors.Is(err, errHint) && i.hints == 1
}

// timeoutResult returns the result of a probe without any answer.
func (d *datagram) timeoutResult() (Answer, error) {
	p := d.q.Probe
	if wait, refused := max(time.Duration(p.Rise)*p.Interval, doubt), d.refused.Load(); refused != nil && time.Since(*refused) < wait {
		return Answer{}, fmt.Errorf("no reply within %v, which %w: the port was unreachable less than %v ago", p.Timeout, ErrUndecided, wait)
	}
	return Answer{What: fmt.Sprintf("neither a reply nor an ICMP error within %v", p.Timeout)}, nil
}

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

// udpProber probes by UDP: it sends the request, and waits for a datagram that contains the
// response (Probe.Response). If no response is configured, silence is success too, and only an ICMP
// error is a failure.
type udpProber struct {
	spec    Spec
	refused *atomic.Pointer[time.Time] // time of the last ICMP error that was accepted
}

func newUDP(spec Spec) *udpProber { return &udpProber{spec, &atomic.Pointer[time.Time]{}} }

const (
	// silenceDoubt is the least time after an ICMP error for which silence is not success. Hosts
	// limit ICMP errors (Linux: about one per second and peer), so a dead endpoint leaves most of
	// frequent probes unanswered.
	silenceDoubt = 10 * time.Second
	// A hint (see udpExchange) counts as proof if this many datagrams from other ports each get
	// the same error within confirmTimeout. Errors that an attacker sends to all ports
	// would have to arrive at these ports at that moment.
	confirmations  = 2
	confirmTimeout = 100 * time.Millisecond
)

// errUnconfirmed is the result of ICMP errors that may be forged.
var errUnconfirmed = fmt.Errorf("an unconfirmed ICMP error, which %w", ErrUndecided)

func (d *udpProber) Probe(ctx context.Context) (Answer, error) {
	start := time.Now()
	i, err := d.send(ctx, d.spec.Probe.Request)
	if err != nil {
		return Answer{}, shorten(d.spec, err)
	}
	defer i.Close()
	defer interrupt(ctx, i)()
	want, mismatch, unconfirmed := []byte(d.spec.Probe.Response), false, false
	for {
		answer, err := i.next()
		var timeout net.Error
		switch timedOut := errors.As(err, &timeout) && timeout.Timeout(); {
		case err == nil && bytes.Contains(answer, want):
			return Answer{What: "answered", Delay: time.Since(start)}, nil
		case err == nil:
			mismatch = true // an answer with the response may follow
		case errors.Is(err, errHint):
			if !unconfirmed && d.confirmed(ctx, i) {
				return d.unreachable(i.hint)
			}
			unconfirmed = true
		case timedOut && mismatch:
			return Answer{}, fmt.Errorf("the answer does not contain %q", want)
		case timedOut && len(want) == 0 && errors.Is(ctx.Err(), context.DeadlineExceeded):
			if unconfirmed {
				return Answer{}, errUnconfirmed
			}
			return d.timeoutResult()
		case !timedOut:
			return d.unreachable(err)
		default:
			return Answer{}, shorten(d.spec, err)
		}
	}
}

// unreachable returns the result for an unreachable endpoint, and records the time for
// timeoutResult.
func (d *udpProber) unreachable(err error) (Answer, error) {
	now := time.Now()
	d.refused.Store(&now)
	return Answer{}, shorten(d.spec, err)
}

// confirmed reports whether datagrams from other ports get an ICMP error too, which proves that the
// first one was not forged.
func (d *udpProber) confirmed(ctx context.Context, i *udpExchange) bool {
	wait := confirmTimeout
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

// retry sends a datagram from another port, which an attacker does not know.
func (d *udpProber) retry(ctx context.Context, wait time.Duration) (proof, hint bool) {
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

// timeoutResult returns the result of a probe that got neither an answer nor an ICMP error.
func (d *udpProber) timeoutResult() (Answer, error) {
	p := d.spec.Probe
	if wait, refused := max(time.Duration(p.Rise)*p.Interval, silenceDoubt), d.refused.Load(); refused != nil && time.Since(*refused) < wait {
		return Answer{}, fmt.Errorf("no reply within %v, which %w: the port was unreachable less than %v ago", p.Timeout, ErrUndecided, wait)
	}
	return Answer{What: fmt.Sprintf("neither a reply nor an ICMP error within %v", p.Timeout)}, nil
}

package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// datagram sends the request by UDP, and waits for a datagram that has the response in it. Without a response, it is content
// if nobody says until the end that the port is unreachable.
type datagram struct {
	q       Question
	refused *atomic.Pointer[time.Time] // when an ICMP error came last
}

func newDatagram(q Question) *datagram { return &datagram{q, &atomic.Pointer[time.Time]{}} }

// doubt is how long silence says nothing after an ICMP error, at least: hosts send few of them, Linux about one a second to each peer, so
// a dead endpoint is silent to most probes that come more often.
const doubt = 10 * time.Second

func (d *datagram) Probe(ctx context.Context) (Answer, error) {
	start := time.Now()
	c, err := dial(ctx, "udp", d.q)
	if err != nil {
		return Answer{}, plain(d.q, err)
	}
	defer c.Close()
	defer interrupt(ctx, c)()
	if _, err := io.WriteString(c, d.q.Probe.Request); err != nil {
		return Answer{}, plain(d.q, err)
	}
	want, strange := []byte(d.q.Probe.Response), false
	buf := make([]byte, chunk)
	for {
		n, err := c.Read(buf)
		var timeout net.Error
		switch over := errors.As(err, &timeout) && timeout.Timeout(); {
		case err == nil && bytes.Contains(buf[:n], want):
			return Answer{What: "answered", Delay: time.Since(start)}, nil
		case err == nil:
			strange = true // another one may come
		case over && strange:
			return Answer{}, fmt.Errorf("the answer has no %q in it", want)
		case over && len(want) == 0 && !errors.Is(ctx.Err(), context.Canceled):
			return d.silent()
		case !over:
			now := time.Now()
			d.refused.Store(&now)
			fallthrough
		default:
			return Answer{}, plain(d.q, err)
		}
	}
}

// silent says what it means that nothing came back.
func (d *datagram) silent() (Answer, error) {
	p := d.q.Probe
	if wait, refused := max(time.Duration(p.Rise)*p.Interval, doubt), d.refused.Load(); refused != nil && time.Since(*refused) < wait {
		return Answer{}, fmt.Errorf("nothing came back for %v, which %w: less than %v ago it was unreachable", p.Timeout, ErrUndecided, wait)
	}
	return Answer{What: fmt.Sprintf("nothing came back for %v, not even that the port is unreachable", p.Timeout)}, nil
}

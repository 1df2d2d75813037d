package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"loxilb/internal/lb"
)

// stream connects by TCP, sends the request, and searches the answer for the response.
type stream struct{ q Question }

func (s stream) Probe(ctx context.Context) (Answer, error) {
	start := time.Now()
	c, err := dial(ctx, "tcp", s.q)
	if err != nil {
		return Answer{}, shorten(s.q, err)
	}
	defer c.Close()
	defer interrupt(ctx, c)()
	if _, err := io.WriteString(c, s.q.Probe.Request); err != nil {
		return Answer{}, shorten(s.q, err)
	}
	if err := readUntil(s.q, c, s.q.Probe.Response); err != nil {
		return Answer{}, err
	}
	return Answer{What: "answered", Delay: time.Since(start)}, nil
}

// interrupt ends blocking calls on a connection when ctx ends, until stop is called.
func interrupt(ctx context.Context, c net.Conn) (stop func() bool) {
	return context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
}

const (
	most  = 64 << 10 // bytes of an answer that are searched
	chunk = 4 << 10
)

// readUntil reads an answer until it contains want; an empty want: until anything arrives.
func readUntil(q Question, r io.Reader, want string) error {
	buf := make([]byte, chunk+len(want))
	kept, total := 0, 0 // kept: bytes at the beginning that may be part of want
	for {
		n, err := r.Read(buf[kept : kept+chunk])
		total += n
		have := buf[:kept+n]
		switch {
		case n > 0 && bytes.Contains(have, []byte(want)):
			return nil
		case errors.Is(err, io.EOF) && total == 0:
			return errors.New("closed without an answer")
		case errors.Is(err, io.EOF):
			return fmt.Errorf("the answer has no %q in it", want)
		case err != nil && total > 0:
			return fmt.Errorf("%w after %d bytes without %q", shorten(q, err), total, want)
		case err != nil:
			return shorten(q, err)
		case total >= most:
			return fmt.Errorf("no %q in the first %d bytes of the answer", want, most)
		}
		kept = copy(buf, have[max(0, len(have)-len(want)+1):])
	}
}

// Handshake connects by TCP, and holds the connection for a while. It returns nil if the endpoint
// has not reset it by then. The SYN may be lost, so a second connection begins halfway.
func Handshake(ctx context.Context, to netip.AddrPort, timeout, hold time.Duration) error {
	q := Question{To: to, Probe: lb.Probe{Type: lb.ProbeTCP, Timeout: timeout}}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	const attempts = 2
	ended := make(chan error, attempts)
	try := func() { ended <- shorten(q, connectAndHold(ctx, q, hold)) }
	go try()
	half := time.NewTimer(timeout / attempts)
	defer half.Stop()
	var err error
	for left := attempts; left > 0; {
		select {
		case <-half.C:
			go try()
		case err = <-ended:
			if left--; !errors.Is(err, errLate) {
				return err
			}
		}
	}
	return err
}

func connectAndHold(ctx context.Context, q Question, hold time.Duration) error {
	c, err := dial(ctx, "tcp", q)
	if hold == 0 && errors.Is(err, syscall.ECONNRESET) {
		return nil // it accepted the connection before
	}
	if err != nil {
		return err
	}
	defer c.Close()
	if hold == 0 {
		return nil
	}
	if err := c.SetReadDeadline(time.Now().Add(hold)); err != nil {
		return err
	}
	if _, err := c.Read(make([]byte, 1)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

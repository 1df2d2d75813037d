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

// tcpProber probes by TCP: it connects, sends the request, and searches the answer for the
// response.
type tcpProber struct{ spec Spec }

func (s tcpProber) Probe(ctx context.Context) (Answer, error) {
	start := time.Now()
	c, err := dial(ctx, "tcp", s.spec)
	if err != nil {
		return Answer{}, shorten(s.spec, err)
	}
	defer c.Close()
	defer interrupt(ctx, c)()
	if _, err := io.WriteString(c, s.spec.Probe.Request); err != nil {
		return Answer{}, shorten(s.spec, err)
	}
	if err := readUntil(s.spec, c, s.spec.Probe.Response); err != nil {
		return Answer{}, err
	}
	return Answer{What: "answered", Delay: time.Since(start)}, nil
}

// interrupt ends blocking calls on a connection when ctx ends, until stop is called.
func interrupt(ctx context.Context, c net.Conn) (stop func() bool) {
	return context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
}

const (
	maxSearched = 64 << 10 // bytes of an answer that are searched
	chunk       = 4 << 10  // bytes per call of Read
)

// readUntil reads an answer until it contains want. If want is empty, any data is enough.
func readUntil(spec Spec, r io.Reader, want string) error {
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
			return fmt.Errorf("the answer does not contain %q", want)
		case err != nil && total > 0:
			return fmt.Errorf("%w after %d bytes without %q", shorten(spec, err), total, want)
		case err != nil:
			return shorten(spec, err)
		case total >= maxSearched:
			return fmt.Errorf("no %q in the first %d bytes of the answer", want, maxSearched)
		}
		kept = copy(buf, have[max(0, len(have)-len(want)+1):])
	}
}

// Handshake connects by TCP, and keeps the connection open for the time hold. It returns nil unless
// the endpoint refuses or resets the connection. As the SYN may be lost, it opens a second
// connection when half of the timeout has passed.
func Handshake(ctx context.Context, to netip.AddrPort, timeout, hold time.Duration) error {
	spec := Spec{To: to, Probe: lb.Probe{Type: lb.ProbeTCP, Timeout: timeout}}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	const attempts = 2
	ended := make(chan error, attempts)
	try := func() { ended <- shorten(spec, connectAndHold(ctx, spec, hold)) }
	go try()
	half := time.NewTimer(timeout / attempts)
	defer half.Stop()
	var err error
	for left := attempts; left > 0; {
		select {
		case <-half.C:
			go try()
		case err = <-ended:
			if left--; !errors.Is(err, errTimeout) {
				return err
			}
		}
	}
	return err
}

func connectAndHold(ctx context.Context, spec Spec, hold time.Duration) error {
	c, err := dial(ctx, "tcp", spec)
	if hold == 0 && errors.Is(err, syscall.ECONNRESET) {
		return nil // the endpoint had accepted the connection
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

package probe

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"os"
	"syscall"
	"time"

	"loxilb/internal/lb"
)

// Handshake connects by TCP, and holds the connection for a while: nil, if the endpoint has not
// reset it by then. The SYN may be lost, so a second connection begins halfway.
func Handshake(ctx context.Context, to netip.AddrPort, timeout, hold time.Duration) error {
	q := Question{To: to, Probe: lb.Probe{Type: lb.ProbeTCP, Timeout: timeout}}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	const attempts = 2
	ended := make(chan error, attempts)
	try := func() { ended <- plain(q, shake(ctx, q, hold)) }
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

func shake(ctx context.Context, q Question, hold time.Duration) error {
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

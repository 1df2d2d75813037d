package probe

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"syscall"
	"time"
)

// shorten shortens an error to one clause, without the addresses that evidence begins with. It
// wraps ErrNotSent if this machine caused it.
func shorten(q Question, err error) error {
	var (
		errno   syscall.Errno
		timeout net.Error
		trust   *tls.CertificateVerificationError
		wrapped *url.Error
		op      *net.OpError
	)
	switch {
	case errors.As(err, &op) && errors.Is(op.Err, ErrNotSent):
		return op.Err
	case errors.Is(err, ErrNotSent):
		return err
	case errors.As(err, &errno):
		return errnoError(q, errno)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return timeoutError(q)
	case errors.As(err, &trust):
		return untrusted(trust.Err, time.Now())
	case errors.As(err, &wrapped):
		return wrapped.Err
	case errors.As(err, &op):
		return op.Err
	}
	return err
}

// untrusted describes the fault of a certificate. Whether it is expired or not yet valid depends on
// this machine's clock, which may be wrong.
func untrusted(err error, now time.Time) error {
	var invalid x509.CertificateInvalidError
	if !errors.As(err, &invalid) || invalid.Reason != x509.Expired || invalid.Cert == nil {
		return fmt.Errorf("certificate is not trusted: %w", err)
	}
	said := now.UTC().Format(time.DateOnly)
	if now.Before(invalid.Cert.NotBefore) {
		return fmt.Errorf("certificate is not valid yet: it begins at %s, and this machine's clock says %s", invalid.Cert.NotBefore.UTC().Format(time.RFC3339), said)
	}
	return fmt.Errorf("certificate has expired: it ended at %s, and this machine's clock says %s", invalid.Cert.NotAfter.UTC().Format(time.RFC3339), said)
}

// errLate is wrapped by errors of a timeout.
var errLate = errors.New("no answer")

func timeoutError(q Question) error {
	if q.Redirect != nil {
		return fmt.Errorf("%w within %v: in mode dsr the endpoint must own %s", errLate, q.Probe.Timeout, q.To.Addr())
	}
	return fmt.Errorf("%w within %v", errLate, q.Probe.Timeout)
}

// errnoError separates failures of this machine, which are no evidence about the endpoint, from
// failures of the network. EACCES is a network failure, as ICMPv6 reports by it that a host forbids
// the probe.
func errnoError(q Question, errno syscall.Errno) error {
	switch errno {
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, // descriptors, memory
		syscall.EADDRNOTAVAIL, syscall.EADDRINUSE, syscall.EPERM, // ports; the source address; a firewall of this machine
		syscall.EINVAL, syscall.EAFNOSUPPORT: // a source of the other IP version; IPv6 is switched off
		return fmt.Errorf("%w: %w", ErrNotSent, errno)
	case syscall.ETIMEDOUT:
		return timeoutError(q)
	case syscall.EPIPE: // the reset came before the request was written
		return syscall.ECONNRESET
	}
	return errno
}

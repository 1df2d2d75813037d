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

// shorten shortens an error to one clause, without the addresses: evidence begins with these. The
// result wraps ErrNotSent if this machine caused the error.
func shorten(spec Spec, err error) error {
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
		return errnoError(spec, errno)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return timeoutError(spec)
	case errors.As(err, &trust):
		return certificateError(trust.Err, time.Now())
	case errors.As(err, &wrapped):
		return wrapped.Err
	case errors.As(err, &op):
		return op.Err
	}
	return err
}

// certificateError describes why a certificate is not trusted. If it is expired or not valid yet,
// the error also has this machine's time, as the clock may be wrong.
func certificateError(err error, now time.Time) error {
	var invalid x509.CertificateInvalidError
	if !errors.As(err, &invalid) || invalid.Reason != x509.Expired || invalid.Cert == nil {
		return fmt.Errorf("certificate is not trusted: %w", err)
	}
	today := now.UTC().Format(time.DateOnly)
	if now.Before(invalid.Cert.NotBefore) {
		return fmt.Errorf("certificate is not valid before %s, and this machine's clock says %s", invalid.Cert.NotBefore.UTC().Format(time.RFC3339), today)
	}
	return fmt.Errorf("certificate expired at %s, and this machine's clock says %s", invalid.Cert.NotAfter.UTC().Format(time.RFC3339), today)
}

// errTimeout is wrapped by the errors of probes that timed out.
var errTimeout = errors.New("no answer")

func timeoutError(spec Spec) error {
	if spec.Redirect != nil {
		return fmt.Errorf("%w within %v: in mode dsr the endpoint must own %s", errTimeout, spec.Probe.Timeout, spec.To.Addr())
	}
	return fmt.Errorf("%w within %v", errTimeout, spec.Probe.Timeout)
}

// errnoError separates failures of this machine, which are no evidence about the endpoint, from
// failures of the network. EACCES is a failure of the network: the kernel reports it when ICMPv6
// says that a host prohibits the probe.
func errnoError(spec Spec, errno syscall.Errno) error {
	switch errno {
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, // descriptors, memory
		syscall.EADDRNOTAVAIL, syscall.EADDRINUSE, syscall.EPERM, // ports; the source address; a firewall of this machine
		syscall.EINVAL, syscall.EAFNOSUPPORT: // a source of the other IP version; IPv6 is switched off
		return fmt.Errorf("%w: %w", ErrNotSent, errno)
	case syscall.ETIMEDOUT:
		return timeoutError(spec)
	case syscall.EPIPE: // the reset came before the request was written
		return syscall.ECONNRESET
	}
	return errno
}

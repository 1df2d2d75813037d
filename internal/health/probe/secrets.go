package probe

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"time"
)

// secrets are the files that TLS needs. They are read again when they change: certificates are renewed.
type secrets struct {
	q      Question
	read   *tls.Config // made of them
	stamps [3]stamp    // as they were then
}

// stamp tells a file from what it was before.
type stamp struct {
	changed time.Time
	size    int64
}

func newSecrets(q Question) *secrets { return &secrets{q: q} }

// config is what TLS is to do. A Prober asks once at a time, and so does this.
func (s *secrets) config() (*tls.Config, error) {
	var stamps [3]stamp
	for i, name := range []string{s.q.Probe.CA, s.q.Probe.Certificate, s.q.Probe.Key} {
		if name == "" {
			continue
		}
		info, err := os.Stat(name)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNotAsked, err)
		}
		stamps[i] = stamp{info.ModTime(), info.Size()}
	}
	if s.read == nil || stamps != s.stamps {
		c, err := s.load()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNotAsked, err)
		}
		s.read, s.stamps = c, stamps
	}
	return s.read.Clone(), nil
}

// load reads the files. Without a CA there is nothing that a certificate could be verified by.
func (s *secrets) load() (*tls.Config, error) {
	p := s.q.Probe
	c := &tls.Config{ServerName: p.Host, InsecureSkipVerify: p.CA == ""}
	if host, _, err := net.SplitHostPort(p.Host); err == nil {
		c.ServerName = host
	}
	if c.ServerName == "" {
		c.ServerName = s.q.To.Addr().String()
	}
	if p.CA != "" {
		pem, err := os.ReadFile(p.CA)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("no certificate (PEM) in %s", p.CA)
		}
	}
	if p.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(p.Certificate, p.Key)
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

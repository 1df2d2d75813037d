package probe

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
)

// secrets are the files for TLS. They are read again when they change: certificates are renewed.
type secrets struct {
	q      Question
	files  Files
	read   *tls.Config // made from them
	stamps [3]stamp    // their versions then
	logged string      // the last problem that was logged
}

func newSecrets(q Question, files Files) *secrets { return &secrets{q: q, files: files} }

// config returns the TLS configuration. It is not safe for concurrent use, like a Prober.
func (s *secrets) config() (*tls.Config, error) {
	c, err := s.current()
	s.logOnce(err)
	if err != nil {
		return nil, err
	}
	return c.Clone(), nil
}

// current returns the configuration of the current files.
func (s *secrets) current() (*tls.Config, error) {
	var stamps [3]stamp
	p := s.q.Probe
	for i, f := range [...]struct{ what, name string }{{"CA", p.CA}, {"certificate", p.Certificate}, {"key", p.Key}} {
		if f.name == "" {
			continue
		}
		if !s.files.contains(f.name) {
			return nil, &fileError{"the file of the probe " + f.what + " is not below " + s.files.Dir, f.name, nil}
		}
		var err error
		if stamps[i], err = s.files.stamp(f.name); err != nil {
			return nil, errUnreadable(f.what, f.name, err)
		}
	}
	if s.read == nil || stamps != s.stamps {
		c, err := s.load()
		if err != nil {
			return nil, err
		}
		s.read, s.stamps = c, stamps
	}
	return s.read, nil
}

// load reads the files. Without a CA no certificate can be verified.
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
		ca, err := s.pem("CA", p.CA)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(ca) {
			return nil, errNoPEM("CA", p.CA)
		}
	}
	if p.Certificate != "" {
		certificate, err := s.pem("certificate", p.Certificate)
		if err != nil {
			return nil, err
		}
		key, err := s.pem("key", p.Key)
		if err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(certificate, key)
		if err != nil {
			return nil, &fileError{"the probe key does not match the probe certificate", p.Key, err}
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// pem reads a file that has PEM in it.
func (s *secrets) pem(what, name string) ([]byte, error) {
	content, err := s.files.read(name)
	if err != nil {
		return nil, errUnreadable(what, name, err)
	}
	if block, _ := pem.Decode(content); block == nil {
		return nil, errNoPEM(what, name)
	}
	return content, nil
}

func errUnreadable(what, name string, cause error) error {
	return &fileError{"the file of the probe " + what + " cannot be read", name, cause}
}

func errNoPEM(what, name string) error {
	return &fileError{"the file of the probe " + what + " is not PEM", name, nil}
}

// logOnce logs a problem with a file once.
func (s *secrets) logOnce(err error) {
	var wrong *fileError
	if !errors.As(err, &wrong) {
		s.logged = ""
		return
	}
	text := wrong.what
	if wrong.cause != nil {
		text += ": " + wrong.cause.Error()
	}
	if text != s.logged {
		s.files.Log.Warn("a file of a probe cannot be used", "endpoint", s.q.To, "file", wrong.file, "error", text)
		s.logged = text
	}
}

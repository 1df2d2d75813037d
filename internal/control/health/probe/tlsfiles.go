package probe

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"net"
	"path/filepath"

	"loxilb/internal/lb"
)

// tlsFiles are a probe's files for TLS. They are read again when they change, as when a certificate
// is renewed.
type tlsFiles struct {
	spec     Spec
	files    Files
	loaded   *tls.Config    // from the files
	versions [3]fileVersion // versions of the files that loaded is from
	logged   string         // the last problem that was logged
}

func newTLSFiles(spec Spec, files Files) *tlsFiles { return &tlsFiles{spec: spec, files: files} }

// config returns the TLS configuration. It is not safe for concurrent use, like a Prober.
func (s *tlsFiles) config() (*tls.Config, error) {
	c, err := s.current()
	s.logOnce(err)
	if err != nil {
		return nil, err
	}
	return c.Clone(), nil
}

// current returns the configuration of the current files.
func (s *tlsFiles) current() (*tls.Config, error) {
	var versions [3]fileVersion
	p := s.spec.Probe
	pair := s.pair()
	for i, f := range [...]struct {
		what, name string
		files      Files
	}{{"CA", p.CA, s.files}, {"certificate", pair.certificate, pair.files}, {"key", pair.key, pair.files}} {
		if f.name == "" {
			continue
		}
		if !f.files.contains(f.name) {
			return nil, &fileError{"the probe's " + f.what + " file is not below " + f.files.Dir, f.name, nil}
		}
		var err error
		if versions[i], err = f.files.version(f.name); err != nil {
			return nil, errUnreadable(f.what, f.name, err)
		}
	}
	if s.loaded == nil || versions != s.versions {
		c, err := s.load(pair)
		if err != nil {
			return nil, err
		}
		s.loaded, s.versions = c, versions
	}
	return s.loaded, nil
}

// clientPair names the files of a client certificate; without a name, there is none.
type clientPair struct {
	files            Files
	certificate, key string
}

// pair returns the probe's own files, or those of files.Compat if it has them.
func (s *tlsFiles) pair() clientPair {
	p := s.spec.Probe
	own := clientPair{s.files, p.Certificate, p.Key}
	if p.Certificate != "" || p.Type != lb.ProbeHTTPS || s.files.Compat == "" {
		return own
	}
	compat := Files{Dir: s.files.Compat, Log: s.files.Log}
	pair := clientPair{compat, filepath.Join(compat.Dir, "server.crt"), filepath.Join(compat.Dir, "server.key")}
	for _, name := range []string{pair.certificate, pair.key} {
		if _, err := compat.version(name); errors.Is(err, fs.ErrNotExist) {
			return own
		}
	}
	return pair
}

// load reads the files. Without a CA, the endpoint's certificate is not verified.
func (s *tlsFiles) load(client clientPair) (*tls.Config, error) {
	p := s.spec.Probe
	c := &tls.Config{ServerName: p.Host, InsecureSkipVerify: p.CA == ""}
	if host, _, err := net.SplitHostPort(p.Host); err == nil {
		c.ServerName = host
	}
	if c.ServerName == "" {
		c.ServerName = s.spec.To.Addr().String()
	}
	if p.CA != "" {
		ca, err := s.files.pem("CA", p.CA)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(ca) {
			return nil, errNoPEM("CA", p.CA)
		}
	}
	if client.certificate != "" {
		certificate, err := client.files.pem("certificate", client.certificate)
		if err != nil {
			return nil, err
		}
		key, err := client.files.pem("key", client.key)
		if err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(certificate, key)
		if err != nil {
			return nil, &fileError{"the probe's key does not match its certificate", client.key, err}
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// pem reads a PEM file.
func (f Files) pem(what, name string) ([]byte, error) {
	content, err := f.read(name)
	if err != nil {
		return nil, errUnreadable(what, name, err)
	}
	if block, _ := pem.Decode(content); block == nil {
		return nil, errNoPEM(what, name)
	}
	return content, nil
}

func errUnreadable(what, name string, cause error) error {
	return &fileError{"the probe's " + what + " file cannot be read", name, cause}
}

func errNoPEM(what, name string) error {
	return &fileError{"the probe's " + what + " file is not PEM", name, nil}
}

// logOnce logs a problem with a file, unless it is the one that was logged last.
func (s *tlsFiles) logOnce(err error) {
	var problem *fileError
	if !errors.As(err, &problem) {
		s.logged = ""
		return
	}
	text := problem.what
	if problem.cause != nil {
		text += ": " + problem.cause.Error()
	}
	if text != s.logged {
		s.files.Log.Warn("probe file cannot be used", "endpoint", s.spec.To, "file", problem.file, "error", text)
		s.logged = text
	}
}

package config

import (
	"crypto/tls"
	"fmt"
	"net/netip"
	"net/textproto"
	"net/url"
	"os"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// OTLP is the destination of metrics and events. The zero value means none.
type OTLP struct {
	Endpoint string            // URL of a collector
	Headers  map[string]string // of each request
	TLS      *tls.Config       // nil: the machine's defaults
	Interval time.Duration     // between exports of metrics
}

// otlpFlags holds the flags as given.
type otlpFlags struct {
	endpoint, headers string
	ca, cert, key     string
	interval          time.Duration
}

const (
	minOTLPInterval = time.Second
	maxOTLPInterval = time.Hour
)

func (f *otlpFlags) check() (OTLP, error) {
	if err := f.checkFiles(); err != nil {
		return OTLP{}, err
	}
	if f.interval < minOTLPInterval || f.interval > maxOTLPInterval {
		return OTLP{}, &Error{"--otlp-interval", f.interval.String(), fmt.Sprintf("is out of range (allowed: %v to %v)", minOTLPInterval, maxOTLPInterval)}
	}
	if f.endpoint == "" {
		return OTLP{}, nil
	}
	u, err := url.Parse(f.endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return OTLP{}, &Error{"--otlp-endpoint", f.endpoint, "is not a collector URL (allowed: http://HOST:4318 or https://HOST:4318, with an optional path)"}
	}
	o := OTLP{Endpoint: strings.TrimRight(u.String(), "/"), Interval: f.interval}
	if at, err := netip.ParseAddr(u.Hostname()); u.Scheme == "http" && f.headers != "" && u.Hostname() != "localhost" && (err != nil || !at.IsLoopback()) {
		return OTLP{}, &Error{"--otlp-headers", f.headers, "would go to another machine unencrypted: use https://"}
	}
	if o.Headers, err = readHeaders(f.headers); err != nil {
		return OTLP{}, err
	}
	if o.TLS, err = f.readTLS(); err != nil {
		return OTLP{}, err
	}
	return o, nil
}

// checkFiles refuses files that would have no effect.
func (f *otlpFlags) checkFiles() error {
	for _, one := range [...]struct {
		flag, path string
		secure     bool // used with HTTPS only
	}{{"--otlp-headers", f.headers, false}, {"--otlp-ca", f.ca, true}, {"--otlp-cert", f.cert, true}, {"--otlp-key", f.key, true}} {
		switch {
		case one.path == "":
		case f.endpoint == "":
			return &Error{one.flag, one.path, "needs --otlp-endpoint"}
		case one.secure && strings.HasPrefix(strings.ToLower(f.endpoint), "http:"):
			return &Error{one.flag, one.path, "needs a collector at https://"}
		}
	}
	switch {
	case f.cert != "" && f.key == "":
		return &Error{"--otlp-cert", f.cert, "has no key: add --otlp-key"}
	case f.key != "" && f.cert == "":
		return &Error{"--otlp-key", f.key, "has no certificate: add --otlp-cert"}
	}
	return nil
}

// readHeaders reads lines of NAME: VALUE. Values may be secret, so the file must not be readable by
// others.
func readHeaders(path string) (map[string]string, error) {
	const flag = "--otlp-headers"
	if path == "" {
		return nil, nil
	}
	text, mode, err := readSmallFile(flag, path)
	if err != nil {
		return nil, err
	}
	if err := checkSecret(flag, path, mode); err != nil {
		return nil, err
	}
	headers := map[string]string{}
	for i, line := range strings.Split(string(text), "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		name, value = textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name)), strings.TrimSpace(value)
		if !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, &Error{flag, path, fmt.Sprintf("has a line %d that is not NAME: VALUE", i+1)}
		}
		headers[name] = value
	}
	return headers, nil
}

// readTLS returns how to verify the collector and authenticate to it; nil: the machine's defaults.
func (f *otlpFlags) readTLS() (*tls.Config, error) {
	if f.ca == "" && f.cert == "" {
		return nil, nil
	}
	c := &tls.Config{}
	if f.ca != "" {
		var err error
		if c.RootCAs, err = readRoots(flagFile{"--otlp-ca", f.ca}); err != nil {
			return nil, err
		}
	}
	if f.cert != "" {
		if _, err := readClientCertificate(f.cert, f.key); err != nil {
			return nil, err
		}
		// Read for each connection: certificates are renewed while the daemon runs.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return readClientCertificate(f.cert, f.key)
		}
	}
	return c, nil
}

// readClientCertificate reads a certificate with its key, which must not be readable by everybody.
func readClientCertificate(cert, key string) (*tls.Certificate, error) {
	if _, mode, err := readSmallFile("--otlp-key", key); err == nil {
		if err := checkSecret("--otlp-key", key, mode); err != nil {
			return nil, err
		}
	}
	return readKeyPair(flagFile{"--otlp-cert", cert}, flagFile{"--otlp-key", key})
}

// checkSecret refuses a file that everybody may read.
func checkSecret(flag, path string, mode os.FileMode) error {
	if mode.Perm()&0o007 != 0 {
		return &Error{flag, path, fmt.Sprintf("has mode %04o: everybody can read it (chmod 600)", mode.Perm())}
	}
	return nil
}

package config

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/netip"
	"net/textproto"
	"net/url"
	"os"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// OTLP is where metrics and events are exported to; the zero value: nowhere.
type OTLP struct {
	Endpoint string            // URL of a collector
	Headers  map[string]string // of each request
	TLS      *tls.Config       // nil: as the machine has it
	Interval time.Duration     // between exports of metrics
}

// otlpFlags are as they are written.
type otlpFlags struct {
	endpoint, headers, ca string
	interval              time.Duration
}

const (
	minOTLPInterval = time.Second
	maxOTLPInterval = time.Hour
	maxOTLPFile     = 1 << 20 // bytes of a file that are read
)

func (f *otlpFlags) check() (OTLP, error) {
	for flag, path := range map[string]string{"--otlp-headers": f.headers, "--otlp-ca": f.ca} {
		if path != "" && f.endpoint == "" {
			return OTLP{}, &Error{flag, path, "is for --otlp-endpoint only"}
		}
	}
	if f.interval < minOTLPInterval || f.interval > maxOTLPInterval {
		return OTLP{}, &Error{"--otlp-interval", f.interval.String(), fmt.Sprintf("is not %v to %v", minOTLPInterval, maxOTLPInterval)}
	}
	if f.endpoint == "" {
		return OTLP{}, nil
	}
	u, err := url.Parse(f.endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return OTLP{}, &Error{"--otlp-endpoint", f.endpoint, "is not a URL of a collector: http://HOST:4318 or https://HOST:4318, perhaps with a path"}
	}
	o := OTLP{Endpoint: strings.TrimRight(u.String(), "/"), Interval: f.interval}
	if u.Scheme == "http" && f.ca != "" {
		return OTLP{}, &Error{"--otlp-ca", f.ca, "is for a collector at https:// only"}
	}
	if at, err := netip.ParseAddr(u.Hostname()); u.Scheme == "http" && f.headers != "" && u.Hostname() != "localhost" && (err != nil || !at.IsLoopback()) {
		return OTLP{}, &Error{"--otlp-headers", f.headers, "would go to another machine unencrypted: use https://"}
	}
	if o.Headers, err = readHeaders(f.headers); err != nil {
		return OTLP{}, err
	}
	if o.TLS, err = readCA(f.ca); err != nil {
		return OTLP{}, err
	}
	return o, nil
}

// readHeaders reads lines of NAME: VALUE. Values may be secrets, so nobody else may read them.
func readHeaders(path string) (map[string]string, error) {
	const flag = "--otlp-headers"
	if path == "" {
		return nil, nil
	}
	text, mode, err := readShort(flag, path)
	if err != nil {
		return nil, err
	}
	if mode.Perm()&0o007 != 0 {
		return nil, &Error{flag, path, fmt.Sprintf("has mode %04o, so that everybody has what is in it: chmod 600 it", mode.Perm())}
	}
	headers := map[string]string{}
	for i, line := range strings.Split(string(text), "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		name, value = textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name)), strings.TrimSpace(value)
		if !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, &Error{flag, path, fmt.Sprintf("has no NAME: VALUE in line %d", i+1)}
		}
		headers[name] = value
	}
	return headers, nil
}

func readCA(path string) (*tls.Config, error) {
	const flag = "--otlp-ca"
	if path == "" {
		return nil, nil
	}
	text, _, err := readShort(flag, path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bytes.TrimSpace(text)) {
		return nil, &Error{flag, path, "holds no certificate (PEM)"}
	}
	return &tls.Config{RootCAs: pool}, nil
}

// readShort reads a file that is not large.
func readShort(flag, path string) ([]byte, os.FileMode, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, &Error{flag, path, "can't be read: " + cause(err)}
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		return nil, 0, &Error{flag, path, "is not a file"}
	}
	if err != nil {
		return nil, 0, &Error{flag, path, "can't be read: " + cause(err)}
	}
	text, err := io.ReadAll(io.LimitReader(f, maxOTLPFile+1))
	if err != nil {
		return nil, 0, &Error{flag, path, "can't be read: " + cause(err)}
	}
	if len(text) > maxOTLPFile {
		return nil, 0, &Error{flag, path, fmt.Sprintf("is larger than %d bytes", maxOTLPFile)}
	}
	return text, info.Mode(), nil
}

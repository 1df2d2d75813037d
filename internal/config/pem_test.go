package config

import (
	"strings"
	"testing"
	"time"

	"loxilb/test/certtest"
)

// TestFilesOfFlags checks that an error of a certificate or key names its flag, its path and the
// reason.
func TestFilesOfFlags(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := certtest.NewAuthority(t, "ca").File(t)
	cert, key := certtest.SelfSigned(t, time.Now().Add(time.Hour), "a").Write(t, dir, "a")
	_, other := certtest.SelfSigned(t, time.Now().Add(time.Hour), "b").Write(t, dir, "b")
	junk := file(t, dir, "junk", "junk", 0o600)
	for _, c := range []struct{ args, ca, cert, key string }{
		{"--store=etcd://10.0.0.9", "--store-ca", "--store-cert", "--store-cert-key"},
		{"--cluster=10.0.0.9", "--cluster-ca", "--cluster-cert", "--cluster-cert-key"},
		{"--otlp-endpoint=https://x", "--otlp-ca", "--otlp-cert", "--otlp-key"},
		{"--tls --tls-host=127.0.0.1", "", "--tls-certificate", "--tls-key"},
	} {
		check := func(wantFlag, path, reason, ca, cert, key string) {
			t.Helper()
			args := append(strings.Fields(c.args), c.cert+"="+cert, c.key+"="+key)
			if c.ca != "" {
				args = append(args, c.ca+"="+ca)
			}
			_, code, msg := run(nil, args...)
			if want := wantFlag + ` "` + path + `" ` + reason; code != ExitUsage || !strings.Contains(msg, want) {
				t.Errorf("%v: got %d %s, want code ExitUsage, %q", args, code, msg, want)
			}
		}
		const unread = "cannot be read: no such file or directory"
		if c.ca != "" {
			check(c.ca, "/none", unread, "/none", cert, key)
			check(c.ca, junk, "contains no certificate (PEM)", junk, cert, key)
		}
		check(c.cert, "/none", unread, ca, "/none", key)
		check(c.key, "/none", unread, ca, cert, "/none")
		check(c.cert, cert, "cannot be used with "+c.key, ca, cert, other)
		check(c.cert, junk, "cannot be used with "+c.key, ca, junk, key)
		args := append(strings.Fields(c.args), c.cert+"="+cert, c.key+"="+key)
		if c.ca != "" {
			args = append(args, c.ca+"="+ca)
		}
		if _, code, msg := run(nil, args...); code != ExitOK {
			t.Errorf("%v: got %d %s, want code ExitOK", args, code, msg)
		}
	}
}

// pemFile returns a file with a certificate and its key.
func pemFile(t *testing.T, dir string) string {
	t.Helper()
	pair := certtest.SelfSigned(t, time.Now().Add(time.Hour), "a")
	return file(t, dir, "pem", string(pair.Cert)+string(pair.Key), 0o600)
}

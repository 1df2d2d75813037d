package config

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"loxilb/test/certtest"
)

func TestOTLP(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	issue := func(name string) (cert, key string) {
		return certtest.SelfSigned(t, time.Now().Add(time.Hour)).Write(t, dir, name)
	}
	secret := file(t, dir, "headers", "# of the collector\nauthorization: Bearer a:b\n\nX-Scope:  one\n", 0o600)
	cert, key := issue("first")
	_, other := issue("other")
	for name, c := range map[string]struct {
		args []string
		want OTLP
		msg  string
	}{
		"none":   {want: OTLP{}},
		"plain":  {args: []string{"--otlp-endpoint=http://10.0.0.1:4318/"}, want: OTLP{Endpoint: "http://10.0.0.1:4318", Interval: time.Minute}},
		"a path": {args: []string{"--otlp-endpoint=https://x/otlp", "--otlp-interval=5s"}, want: OTLP{Endpoint: "https://x/otlp", Interval: 5 * time.Second}},
		"headers": {
			args: []string{"--otlp-endpoint=http://[::1]:4318", "--otlp-headers=" + secret},
			want: OTLP{Endpoint: "http://[::1]:4318", Interval: time.Minute, Headers: map[string]string{"Authorization": "Bearer a:b", "X-Scope": "one"}},
		},
		"no URL":           {args: []string{"--otlp-endpoint=10.0.0.1:4318"}, msg: "is not a collector URL"},
		"gRPC":             {args: []string{"--otlp-endpoint=grpc://x:4317"}, msg: "is not a collector URL"},
		"a user":           {args: []string{"--otlp-endpoint=http://u:p@x"}, msg: "is not a collector URL"},
		"too often":        {args: []string{"--otlp-endpoint=http://x", "--otlp-interval=10ms"}, msg: "allowed: 1s to 1h0m0s"},
		"headers alone":    {args: []string{"--otlp-headers=" + secret}, msg: "needs --otlp-endpoint"},
		"headers in clear": {args: []string{"--otlp-endpoint=http://10.0.0.1:4318", "--otlp-headers=" + secret}, msg: "unencrypted"},
		"open headers":     {args: []string{"--otlp-endpoint=https://x", "--otlp-headers=" + file(t, dir, "open", "a: b", 0o644)}, msg: "chmod 600"},
		"a word":           {args: []string{"--otlp-endpoint=https://x", "--otlp-headers=" + file(t, dir, "word", "a: b\nsecret", 0o600)}, msg: "line 2 that is not"},
		"no file":          {args: []string{"--otlp-endpoint=https://x", "--otlp-headers=" + dir}, msg: "is not a file"},
		"no CA":            {args: []string{"--otlp-endpoint=https://x", "--otlp-ca=" + secret}, msg: "contains no certificate"},
		"no key":           {args: []string{"--otlp-endpoint=https://x", "--otlp-cert=" + cert}, msg: "add --otlp-key"},
		"no certificate":   {args: []string{"--otlp-endpoint=https://x", "--otlp-key=" + key}, msg: "add --otlp-cert"},
		"pair in clear":    {args: []string{"--otlp-endpoint=http://x", "--otlp-cert=" + cert, "--otlp-key=" + key}, msg: "needs a collector at https://"},
		"pair alone":       {args: []string{"--otlp-cert=" + cert, "--otlp-key=" + key}, msg: "needs --otlp-endpoint"},
		"another key":      {args: []string{"--otlp-endpoint=https://x", "--otlp-cert=" + cert, "--otlp-key=" + other}, msg: "cannot be used with --otlp-key: private key does not match public key"},
		"open key":         {args: []string{"--otlp-endpoint=https://x", "--otlp-cert=" + cert, "--otlp-key=" + file(t, dir, "open-key", "x", 0o644)}, msg: "chmod 600"},
		"CA for nothing":   {args: []string{"--otlp-endpoint=http://x", "--otlp-ca=" + secret}, msg: "needs a collector at https://"},
	} {
		got, code, msg := run(nil, c.args...)
		if c.msg != "" {
			if code != ExitUsage || !strings.Contains(msg, c.msg) {
				t.Errorf("%s: got %d %s, want code ExitUsage, c.msg in msg", name, code, msg)
			}
			continue
		}
		if code != ExitOK {
			t.Errorf("%s: got %s, want code ExitOK", name, msg)
			continue
		}
		if diff := cmp.Diff(c.want, got.OTLP); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestOTLPCertificate checks that the pair is read for each connection, so a renewed one is used.
func TestOTLPCertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	issue := func(name string) (cert, key string) {
		return certtest.SelfSigned(t, time.Now().Add(time.Hour)).Write(t, dir, name)
	}
	cert, key := issue("pair")
	got, code, msg := run(nil, "--otlp-endpoint=https://x", "--otlp-cert="+cert, "--otlp-key="+key)
	if code != ExitOK {
		t.Fatalf("got %v, want code ExitOK", msg)
	}
	var before []byte
	for range 2 {
		c, err := got.OTLP.TLS.GetClientCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(c.Certificate[0], before) {
			t.Error("the previous certificate is used")
		}
		before = c.Certificate[0]
		issue("pair")
	}
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	if _, err := got.OTLP.TLS.GetClientCertificate(nil); err == nil {
		t.Error("no error without a key")
	}
}

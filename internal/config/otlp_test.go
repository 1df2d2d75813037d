package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestOTLP(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	secret := file(t, dir, "headers", "# of the collector\nauthorization: Bearer a:b\n\nX-Scope:  one\n", 0o600)
	for name, c := range map[string]struct {
		args []string
		want OTLP
		msg  string
	}{
		"none":             {want: OTLP{}},
		"plain":            {args: []string{"--otlp-endpoint=http://10.0.0.1:4318/"}, want: OTLP{Endpoint: "http://10.0.0.1:4318", Interval: time.Minute}},
		"a path":           {args: []string{"--otlp-endpoint=https://x/otlp", "--otlp-interval=5s"}, want: OTLP{Endpoint: "https://x/otlp", Interval: 5 * time.Second}},
		"headers":          {args: []string{"--otlp-endpoint=http://[::1]:4318", "--otlp-headers=" + secret}, want: OTLP{Endpoint: "http://[::1]:4318", Interval: time.Minute, Headers: map[string]string{"Authorization": "Bearer a:b", "X-Scope": "one"}}},
		"no URL":           {args: []string{"--otlp-endpoint=10.0.0.1:4318"}, msg: "is not a URL of a collector"},
		"gRPC":             {args: []string{"--otlp-endpoint=grpc://x:4317"}, msg: "is not a URL of a collector"},
		"a user":           {args: []string{"--otlp-endpoint=http://u:p@x"}, msg: "is not a URL of a collector"},
		"too often":        {args: []string{"--otlp-endpoint=http://x", "--otlp-interval=10ms"}, msg: "is not 1s to 1h0m0s"},
		"headers alone":    {args: []string{"--otlp-headers=" + secret}, msg: "is for --otlp-endpoint only"},
		"headers in clear": {args: []string{"--otlp-endpoint=http://10.0.0.1:4318", "--otlp-headers=" + secret}, msg: "unencrypted"},
		"open headers":     {args: []string{"--otlp-endpoint=https://x", "--otlp-headers=" + file(t, dir, "open", "a: b", 0o644)}, msg: "chmod 600"},
		"a word":           {args: []string{"--otlp-endpoint=https://x", "--otlp-headers=" + file(t, dir, "word", "a: b\nsecret", 0o600)}, msg: "in line 2"},
		"no file":          {args: []string{"--otlp-endpoint=https://x", "--otlp-headers=" + dir}, msg: "is not a file"},
		"no CA":            {args: []string{"--otlp-endpoint=https://x", "--otlp-ca=" + secret}, msg: "holds no certificate"},
		"CA for nothing":   {args: []string{"--otlp-endpoint=http://x", "--otlp-ca=" + secret}, msg: "https:// only"},
	} {
		got, code, msg := run(nil, c.args...)
		if c.msg != "" {
			if code != ExitUsage || !strings.Contains(msg, c.msg) {
				t.Errorf("%s: %d %s", name, code, msg)
			}
			continue
		}
		if code != ExitOK {
			t.Errorf("%s: %s", name, msg)
			continue
		}
		if diff := cmp.Diff(c.want, got.OTLP); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

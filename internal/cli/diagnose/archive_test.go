package diagnose

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// TestScrub checks that secrets are removed wherever they are, without the text around them, and
// that addresses of clients are removed and others kept.
func TestScrub(t *testing.T) {
	t.Parallel()
	s := newScrubber([]string{"l1teral-token\n", "abc"}, []netip.Addr{netip.MustParseAddr("20.20.20.1"), netip.MustParseAddr("2001:db8::1")})
	for text, want := range map[string]string{
		`{"token":"p1anted","name":"web"}`:                                      `{"token":"[removed]","name":"web"}`,
		`{"apiPassword": "p1an\"ted", "n": 1}`:                                  `{"apiPassword": "[removed]", "n": 1}`,
		`{"otlpHeaders":{"x-auth":"p1anted"},"n":1}`:                            `{"otlpHeaders":"[removed]","n":1}`,
		`{"headers":["a: p1anted"],"n":1}`:                                      `{"headers":"[removed]","n":1}`,
		`{"probereq":"GET / HTTP/1.0\r\nX: p1anted","probeport":80}`:            `{"probereq":"[removed]","probeport":80}`,
		"--manual-token=p1anted --port=1":                                       "--manual-token=[removed] --port=1",
		`OTEL_EXPORTER_OTLP_HEADERS="x=p1anted, y" next`:                        `OTEL_EXPORTER_OTLP_HEADERS=[removed] next`,
		"Authorization: Basic cDFhbnRlZA==\nHost: x":                            "Authorization: [removed]\nHost: x",
		"level=INFO msg=x with Bearer p1anted.and.more tail":                    "level=INFO msg=x with Bearer [removed] tail",
		"-----BEGIN EC PRIVATE KEY-----\np1anted\n-----END EC PRIVATE KEY-----": "[removed]",
		"-----BEGIN PRIVATE KEY-----\np1anted and cut":                          "[removed]",
		"https://ann:p1anted@host/x":                                            "https://[removed]@host/x",
		"ann:$2a$10$p1antedp1anted: x":                                          "ann:[removed]: x",
		"it is l1teral-token.":                                                  "it is [removed].",
		"  password: p1anted\nname: web":                                        "  password: [removed]\nname: web",
		`{"token":"p1anted and cut`:                                             `{"token":"[removed]"`,
		`{"headers":["p1anted`:                                                  `{"headers":"[removed]"`,
		"abc stays, as does select=hash":                                        "abc stays, as does select=hash",
	} {
		if got := s.Text(text, true); got != want {
			t.Errorf("%s\nbecomes %s\nwant    %s", text, got, want)
		}
	}
	const line = "12:34:56 from 7.7.7.7:4000 [2001:db8::9]:80 ::ffff:7.7.7.7 to 20.20.20.1:80 2001:db8::1 127.0.0.1 02:42:ac:11:00:02 v1.2.3"
	const want = "12:34:56 from [address]:4000 [[address]]:80 [address] to 20.20.20.1:80 2001:db8::1 127.0.0.1 02:42:ac:11:00:02 v1.2.3"
	if got := s.Text(line, false); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if got := s.Text(line, true); got != line {
		t.Errorf("addresses are asked for: %s", got)
	}
}

// unpack reads an archive.
func unpack(t *testing.T, archive []byte) (names []string, files map[string]string) {
	t.Helper()
	packed, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	files = map[string]string{}
	for r := tar.NewReader(packed); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names, files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if h.Mode != 0o600 {
			t.Errorf("%s has mode %o", h.Name, h.Mode)
		}
		names = append(names, h.Name)
		files[h.Name] = string(text)
	}
}

// TestWrite checks that the parts are in order, that a part that fails, hangs or is too long is a
// line of the manifest, and that the same state gives the same archive.
func TestWrite(t *testing.T) {
	t.Parallel()
	text := func(s string) func(context.Context) ([]byte, error) {
		return func(context.Context) ([]byte, error) { return []byte(s), nil }
	}
	stuck := make(chan struct{})
	defer close(stuck)
	parts := []archivePart{
		{Name: "a.txt", What: "the first", Collect: text(`token=p1anted from 7.7.7.7`)},
		{Name: "b/c.txt", Clients: true, Collect: text("from 7.7.7.7")},
		{Name: "broken", Collect: func(context.Context) ([]byte, error) { return nil, errors.New("password=p1anted is wrong") }},
		{Name: "stuck", Time: time.Millisecond, Collect: func(context.Context) ([]byte, error) { <-stuck; return nil, nil }},
		{Name: "long", Collect: text(strings.Repeat("x", partBytes+1))},
	}
	o := archiveOptions{Folder: "x", Time: time.Unix(1e9, 0), Scrub: newScrubber(nil, nil)}
	var archive bytes.Buffer
	if _, err := writeArchive(t.Context(), &archive, o, parts); err != nil {
		t.Fatal(err)
	}
	names, files := unpack(t, archive.Bytes())
	if got := strings.Join(names, " "); got != "x/README x/a.txt x/b/c.txt x/long x/MANIFEST" {
		t.Errorf("the archive has the files %s", got)
	}
	if files["x/a.txt"] != "token=[removed] from 7.7.7.7" || files["x/b/c.txt"] != "from [address]" || len(files["x/long"]) != partBytes {
		t.Errorf("got %q, %q and %d bytes, want secrets removed, and the large file cut", files["x/a.txt"], files["x/b/c.txt"], len(files["x/long"]))
	}
	for _, words := range []string{"broken", "failed: password=[removed] is wrong", "failed: not done in 1ms", "cut: it is longer"} {
		if !strings.Contains(files["x/MANIFEST"], words) {
			t.Errorf("%q is not in %s", words, files["x/MANIFEST"])
		}
	}
	if !strings.Contains(files["x/README"], "Client addresses are replaced") || !strings.Contains(files["x/README"], "the first") {
		t.Errorf(`got %v, want "Client addresses are replaced" in files["x/README"], "the first" in files["x/README"]`,
			files["x/README"])
	}
	if all := archive.String(); strings.Contains(all, "p1anted") {
		t.Error("a secret is in the archive")
	}
	o.WithAddresses = true
	var second bytes.Buffer
	if _, err := writeArchive(t.Context(), &second, o, parts[:2]); err != nil {
		t.Fatal(err)
	}
	_, files = unpack(t, second.Bytes())
	if files["x/b/c.txt"] != "from 7.7.7.7" || !strings.Contains(files["x/README"], "CLIENT ADDRESSES ARE INCLUDED") {
		t.Errorf("addresses are asked for: %v", files)
	}
}

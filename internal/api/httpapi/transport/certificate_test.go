package transport

import (
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"loxilb/test/certtest"
)

// TestCertificateIsReadAgain checks that a certificate is used as soon as its files are replaced,
// and that a pair that does not match leaves the old one, with one log line.
func TestCertificateIsReadAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certFile, keyFile := certtest.SelfSigned(t, time.Now().Add(time.Hour)).Write(t, dir, "lb")
	var log strings.Builder
	c, err := newCertificate(certFile, keyFile, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	clock := time.Now()
	c.now = func() time.Time { return clock }
	current := func() string {
		t.Helper()
		got, err := c.get(nil)
		if err != nil {
			t.Fatal(err)
		}
		return string(got.Certificate[0])
	}
	// Files with the same size and time look equal to stat: give each its own time.
	replace := func(path string, text []byte, n int) {
		t.Helper()
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, clock.Add(time.Duration(n)*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	first := current()
	renewed := certtest.SelfSigned(t, time.Now().Add(time.Hour))
	replace(certFile, renewed.Cert, 1)
	if current() != first {
		t.Error("the files were looked at twice in a second")
	}
	for range 3 {
		clock = clock.Add(2 * time.Second)
		if current() != first {
			t.Error("a certificate without its key is used")
		}
	}
	if n := strings.Count(log.String(), "new certificate not used"); n != 1 {
		t.Errorf("the warning was logged %d times:\n%s", n, log.String())
	}
	replace(keyFile, renewed.Key, 2)
	clock = clock.Add(2 * time.Second)
	if current() == first {
		t.Error("the new certificate is not used")
	}
	if err := os.Remove(keyFile); err != nil {
		t.Fatal(err)
	}
	clock = clock.Add(2 * time.Second)
	if current() == first {
		t.Error("the old certificate is back")
	}
}

package probe_test

import (
	"bytes"
	"encoding/pem"
	"errors"
	"testing"
	"time"

	"loxilb/internal/control/health/probe"
	"loxilb/test/certtest"
)

// TestExpiryOf checks that the result is the earliest expiry in a file, at any position, and that
// keys in the file are ignored.
func TestExpiryOf(t *testing.T) {
	t.Parallel()
	soon, late := time.Now().Add(time.Hour).Truncate(time.Second), time.Now().Add(time.Hour*24).Truncate(time.Second)
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte{1}})
	got, err := probe.ExpiryOf(bytes.Join([][]byte{key, certtest.SelfSigned(t, late).Cert, certtest.SelfSigned(t, soon).Cert}, []byte("text\n")))
	if err != nil || !got.Equal(soon) {
		t.Errorf("%v, %v, want %v", got, err, soon)
	}
	broken := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte{1}})
	for _, text := range [][]byte{nil, key, broken, []byte("x")} {
		if _, err := probe.ExpiryOf(text); err == nil {
			t.Errorf("%q is accepted as a certificate", text)
		}
	}
}

// TestExpiryCache checks that a file is read when it is new, has changed, or could not be read
// before.
func TestExpiryCache(t *testing.T) {
	t.Parallel()
	var c probe.ExpiryCache
	end := time.Now().Add(time.Hour).Truncate(time.Second)
	text, failure, reads := certtest.SelfSigned(t, end).Cert, errors.New("no memory"), 0
	read := func() ([]byte, error) { reads++; return text, failure }
	then := time.Unix(1000, 0)
	if _, err := c.Of("a", then, 1, read); !errors.Is(err, failure) {
		t.Errorf("got %v, want the error failure", err)
	}
	failure = nil
	for _, tc := range []struct {
		file    string
		changed time.Time
		size    int64
		reads   int
	}{
		{"a", then, 1, 2}, {"a", then, 1, 2}, {"b", then, 1, 3}, {"a", then, 2, 4}, {"a", then.Add(1), 2, 5}, {"a", then.Add(1), 2, 5},
	} {
		got, err := c.Of(tc.file, tc.changed, tc.size, read)
		if err != nil || !got.Equal(end) || reads != tc.reads {
			t.Errorf("%+v: %v, %v, read %d times", tc, got, err, reads)
		}
	}
}

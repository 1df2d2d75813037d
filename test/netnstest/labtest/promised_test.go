package labtest

import (
	"context"
	"errors"
	"testing"
	"time"
)

// recordingTB records a failure instead of reporting it.
type recordingTB struct {
	testing.TB
	failed bool
}

func (f *recordingTB) Helper() {}

func (f *recordingTB) Fatalf(string, ...any) {
	f.failed = true
	panic(f)
}

// promisedFails reports whether Promised fails if its condition is met after the given time.
func promisedFails(t *testing.T, promise, met time.Duration) bool {
	t.Helper()
	inner := &recordingTB{TB: t}
	func() {
		defer func() {
			if got := recover(); got != nil && got != any(inner) {
				panic(got)
			}
		}()
		start := time.Now()
		Promised(inner, promise, func(context.Context) error {
			if time.Since(start) < met {
				return errors.New("not yet")
			}
			return nil
		})
	}()
	return inner.failed
}

// TestPromised checks that Promised passes if its condition is met in the promised time, and fails
// if it is never met.
func TestPromised(t *testing.T) {
	t.Parallel()
	const promise = time.Second / 5
	if promisedFails(t, promise, promise/2) {
		t.Error("Promised fails, but the condition is met within the promised time")
	}
	if !promisedFails(t, promise, time.Hour) {
		t.Error("Promised passes, but the condition is never met")
	}
}

func TestStalled(t *testing.T) {
	for pressure, want := range map[string]time.Duration{
		"some avg10=9.15 avg60=7.95 avg300=7.94 total=2757\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n": 2757 * time.Microsecond,
		"": 0,
	} {
		if got := stalled(pressure); got != want {
			t.Errorf("stalled(%q) = %v, want %v", pressure, got, want)
		}
	}
}

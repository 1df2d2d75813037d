package labtest

import (
	"context"
	"errors"
	"testing"
	"time"
)

// failing is a test whose failure is noticed instead of reported.
type failing struct {
	testing.TB
	failed bool
}

func (f *failing) Helper() {}

func (f *failing) Fatalf(string, ...any) {
	f.failed = true
	panic(f)
}

// promisedFails reports whether Promised fails a test in which a condition is met after a while.
func promisedFails(t *testing.T, promise, met time.Duration) bool {
	t.Helper()
	inner := &failing{TB: t}
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

// TestPromised checks that what happens in the promised time passes, and that what never happens
// fails.
func TestPromised(t *testing.T) {
	t.Parallel()
	const promise = time.Second / 5
	if promisedFails(t, promise, promise/2) {
		t.Error("what happens within the promised time fails")
	}
	if !promisedFails(t, promise, time.Hour) {
		t.Error("what never happens passes")
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

// Package await waits for conditions in tests, without sleeps of a guessed length.
package await

import (
	"fmt"
	"testing"
	"time"
)

// pause returns the time until the next attempt. It grows with the time waited: many tests wait at
// the same time, and most attempts start a process.
func pause(passed time.Duration) time.Duration {
	return min(max(passed/8, 5*time.Millisecond), 100*time.Millisecond)
}

// NoError calls f until it returns nil. After patience, the test fails with f's last error.
func NoError(t testing.TB, patience time.Duration, f func() error) {
	t.Helper()
	for start := time.Now(); ; time.Sleep(pause(time.Since(start))) {
		err := f()
		if err == nil {
			return
		}
		if time.Since(start) > patience {
			t.Fatalf("not after %v: %v", patience, err)
		}
	}
}

// True calls f until it returns true. After patience, the test fails, and says what did not happen.
func True(t testing.TB, patience time.Duration, what string, f func() bool) {
	t.Helper()
	NoError(t, patience, func() error {
		if !f() {
			return fmt.Errorf("no: %s", what)
		}
		return nil
	})
}

// Steady calls f repeatedly for a while. The test fails as soon as f returns an error.
func Steady(t testing.TB, while time.Duration, f func() error) {
	t.Helper()
	for start := time.Now(); time.Since(start) < while; time.Sleep(pause(time.Since(start))) {
		if err := f(); err != nil {
			t.Fatal(err)
		}
	}
}

// Quiet waits until the count that f returns stays the same for a while. The test fails if this
// takes longer than patience.
func Quiet(t testing.TB, patience, while time.Duration, f func() int64) {
	t.Helper()
	before, since := f(), time.Now()
	NoError(t, patience, func() error {
		if now := f(); now != before {
			before, since = now, time.Now()
		}
		if quiet := time.Since(since); quiet < while {
			return fmt.Errorf("quiet for %v, want %v", quiet, while)
		}
		return nil
	})
}

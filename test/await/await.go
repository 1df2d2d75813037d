// Package await waits in tests for what happens soon, without a sleep of a guessed length.
package await

import (
	"fmt"
	"testing"
	"time"
)

// Pause is the time between two attempts.
const Pause = 5 * time.Millisecond

// NoError calls f until it returns nil. The test fails with f's last error after patience.
func NoError(t testing.TB, patience time.Duration, f func() error) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(Pause) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not after %v: %v", patience, err)
		}
	}
}

// True calls f until it returns true. The test fails after patience: what did not happen.
func True(t testing.TB, patience time.Duration, what string, f func() bool) {
	t.Helper()
	NoError(t, patience, func() error {
		if !f() {
			return fmt.Errorf("no: %s", what)
		}
		return nil
	})
}

// Steady calls f for a while. The test fails as soon as f returns an error.
func Steady(t testing.TB, while time.Duration, f func() error) {
	t.Helper()
	for end := time.Now().Add(while); time.Now().Before(end); time.Sleep(Pause) {
		if err := f(); err != nil {
			t.Fatal(err)
		}
	}
}

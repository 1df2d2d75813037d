package labtest

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"loxilb/test/await"
)

// patienceFactor limits the time that Promised waits, as a multiple of the promised time.
const patienceFactor = 5

// Promised is Eventually for a time that the documentation promises. It does not count time in
// which tasks of this machine waited for a CPU, and waits at most patienceFactor times the promise.
// An idle machine tests the promise, and a busy one does not fail because of other tests.
func Promised(t testing.TB, promise time.Duration, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patienceFactor*promise)
	defer cancel()
	start, before := time.Now(), waitedForCPU()
	var err error
	await.NoError(t, patienceFactor*promise, func() error {
		passed, waited := time.Since(start), waitedForCPU()-before
		if err != nil && passed-waited > promise {
			t.Fatalf("not after %v (tasks waited for a CPU for %v): %v", passed, waited, err)
		}
		err = f(ctx)
		return err
	})
}

// waitedForCPU returns for how long at least one task has waited for a CPU since boot, or 0 if the
// kernel was built without pressure stall information.
func waitedForCPU() time.Duration {
	pressure, err := os.ReadFile("/proc/pressure/cpu")
	if err != nil {
		return 0
	}
	return stalled(string(pressure))
}

// stalled returns the total of the first line of a file in /proc/pressure, or 0 if it has none.
func stalled(pressure string) time.Duration {
	var avg10, avg60, avg300 float64
	var total int64 // in microseconds
	const some = "some avg10=%f avg60=%f avg300=%f total=%d"
	if _, err := fmt.Sscanf(pressure, some, &avg10, &avg60, &avg300, &total); err != nil {
		return 0
	}
	return time.Duration(total) * time.Microsecond
}

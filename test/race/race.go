// Package race skips slow tests under the race detector.
package race

import (
	"os"
	"testing"
)

// Skip skips a test under the race detector. It is for long tests in which one goroutine runs at a
// time, or in which the test itself takes the time: other tests cover concurrent code. tools/tests
// runs them without the race detector, and make test-long with it. A test must call Skip itself,
// not in a helper: tools/tests searches the source for these tests.
func Skip(t *testing.T) {
	t.Helper()
	if enabled && os.Getenv("RACE_ALL") == "" {
		t.Skip("runs without the race detector")
	}
}

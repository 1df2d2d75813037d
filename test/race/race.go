// Package race skips slow tests under the race detector.
package race

import (
	"os"
	"testing"
)

// Skip skips a test under the race detector. It is for long tests in which one goroutine runs at a
// time: the detector would only slow them, and other tests cover concurrent code. tools/tests runs
// them without the race detector, and make test-long with it. Tests call Skip themselves, not in
// helpers: tools/tests reads their names from the source.
func Skip(t *testing.T) {
	t.Helper()
	if enabled && os.Getenv("RACE_ALL") == "" {
		t.Skip("runs without the race detector")
	}
}

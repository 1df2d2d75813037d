// Package race skips tests with the race detector if it only slows them.
package race

import (
	"os"
	"testing"
)

// Skip skips a test under the race detector, which makes it several times slower: its work is done
// by one goroutine at a time, and other tests cover what runs concurrently. tools/tests runs it
// without the race detector, and make test-long with it. Tests call it themselves, not in helpers:
// tools/tests reads their names from the source.
func Skip(t *testing.T) {
	t.Helper()
	if enabled && os.Getenv("RACE_ALL") == "" {
		t.Skip("runs without the race detector")
	}
}

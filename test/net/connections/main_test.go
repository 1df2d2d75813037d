// Package connections_test tests connections: many at a time, in large transfers, and how drains,
// deletions, timeouts and kills end them.
package connections_test

import (
	"os"
	"testing"

	"loxilb/test/net/rig"
)

// TestMain builds the programs under test, unless this process is one of its own helpers.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == holdArg {
		os.Exit(holdMain(os.Args[2:]))
	}
	os.Exit(rig.Main(m))
}

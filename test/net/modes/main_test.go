// Package modes_test is about how packets get to endpoints and back, in each mode, as both sides
// and their wires see them.
package modes_test

import (
	"os"
	"testing"

	"loxilb/test/net/rig"
)

// TestMain builds the programs under test.
func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

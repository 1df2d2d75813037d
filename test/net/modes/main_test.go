// Package modes_test tests the path and the addresses of packets in each mode, as both ends and
// their links see them.
package modes_test

import (
	"os"
	"testing"

	"loxilb/test/net/rig"
)

// TestMain builds the programs under test.
func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

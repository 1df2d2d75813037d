// Package roles_test tests which of two nodes owns VIPs: elections by BFD, as the network sees
// them.
package roles_test

import (
	"os"
	"testing"

	"loxilb/test/net/rig"
)

// TestMain builds the programs under test.
func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

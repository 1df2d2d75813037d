// Package roles_test tests which of two nodes owns VIPs after elections by BFD, from a client in
// their network.
package roles_test

import (
	"os"
	"testing"

	"loxilb/test/net/rig"
)

// TestMain builds the programs under test.
func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

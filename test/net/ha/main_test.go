// Package ha_test tests two nodes behind a router: which routes they announce, and maintenance.
package ha_test

import (
	"os"
	"testing"

	"loxilb/test/net/rig"
)

// TestMain builds the programs under test.
func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

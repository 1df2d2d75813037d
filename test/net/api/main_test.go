// Package api_test tests what users of a running daemon's API see: permissions, limits, applied
// configuration and logs.
package api_test

import (
	"os"
	"testing"

	"loxilb/test/net/rig"
)

// TestMain builds the programs under test.
func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

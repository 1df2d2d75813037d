// Package api_test tests the API of a running daemon: permissions, limits, applied configuration,
// traces and logs.
package api_test

import (
	"os"
	"testing"

	"loxilb/test/net/rig"
)

// TestMain builds the programs under test.
func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

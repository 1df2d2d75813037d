// Package api_test is about what users ask of a running daemon and are told by it: who may, how
// much at once, what is applied, what is logged.
package api_test

import (
	"os"
	"testing"

	"loxilb/test/net/rig"
)

// TestMain builds the programs under test.
func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

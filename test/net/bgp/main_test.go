// Package bgp_test tests BGP by the daemon, with real routers.
package bgp_test

import (
	"os"
	"testing"

	"loxilb/test/net/rig"
)

// TestMain builds the programs under test.
func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

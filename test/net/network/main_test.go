// Package network_test tests how the balancer reacts to changes of the network: interfaces, routes,
// neighbors, VIPs and tunnels.
package network_test

import (
	"os"
	"testing"

	"loxilb/test/net/rig"
)

// TestMain builds the programs under test.
func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

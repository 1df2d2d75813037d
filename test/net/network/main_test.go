// Package network_test is about the network around the balancer as it changes: interfaces, routes,
// neighbours, VIPs, tunnels.
package network_test

import (
	"os"
	"testing"

	"loxilb/test/net/rig"
)

// TestMain builds the programs under test.
func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

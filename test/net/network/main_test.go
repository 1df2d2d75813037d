// Package network_test tests how the balancer follows changes of the network: interfaces, routes,
// neighbours, VIPs, tunnels.
package network_test

import (
	"os"
	"testing"

	"loxilb/test/net/rig"
)

// TestMain builds the programs under test.
func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

// Package policy_test tests firewall rules, source addresses of endpoints, policers, mirrors, and
// challenges during floods.
package policy_test

import (
	"os"
	"testing"

	"loxilb/test/net/rig"
)

// TestMain builds the programs under test.
func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

// Package policy_test is about what decides about packets besides services: firewall rules, source
// addresses, policers, copies, floods.
package policy_test

import (
	"os"
	"testing"

	"loxilb/test/net/rig"
)

// TestMain builds the programs under test.
func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

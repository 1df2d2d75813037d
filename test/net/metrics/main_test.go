// Package metrics_test tests metrics: what scrapes show during the life of a daemon, and that other
// programs understand them.
package metrics_test

import (
	"os"
	"testing"

	"loxilb/test/net/rig"
)

// TestMain builds the programs under test.
func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

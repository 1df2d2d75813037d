// Package metrics_test tests metrics: their values across restarts, and that Prometheus and its
// dashboards can use them.
package metrics_test

import (
	"os"
	"testing"

	"loxilb/test/net/rig"
)

// TestMain builds the programs under test.
func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

// Package metrics_test is about metrics: what a scrape shows over the life of a daemon, and that
// others understand it.
package metrics_test

import (
	"os"
	"testing"

	"loxilb/test/net/rig"
)

// TestMain builds the programs under test.
func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

// Package checks_test tests how faults are reported: by doctor, verify, bundle and the log.
package checks_test

import (
	"os"
	"testing"

	"loxilb/test/net/rig"
)

// TestMain builds the programs under test.
func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

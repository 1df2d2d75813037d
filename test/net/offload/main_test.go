// Package offload_test is about packets that the kernel has made large, has not summed, or hands to
// XDP.
package offload_test

import (
	"os"
	"testing"

	"loxilb/test/net/rig"
)

// TestMain builds the programs under test.
func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

// Package offload_test tests packets of segmentation and checksum offloads, and packets that XDP
// handles.
package offload_test

import (
	"os"
	"testing"

	"loxilb/test/net/rig"
)

// TestMain builds the programs under test.
func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

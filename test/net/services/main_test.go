// Package services_test is about services: how they are named, how they choose endpoints, what they
// count.
package services_test

import (
	"os"
	"testing"

	"loxilb/test/net/rig"
)

// TestMain builds the programs under test.
func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

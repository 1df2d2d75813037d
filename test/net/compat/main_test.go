// Package compat_test is about what others have written for the existing loxilb and for keepalived,
// and what our own documents say.
package compat_test

import (
	"os"
	"testing"

	"loxilb/test/net/rig"
)

// TestMain builds the programs under test.
func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

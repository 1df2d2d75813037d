// Package compat_test tests files and scripts written for the existing loxilb and keepalived, and
// the commands in the documents of this repository.
package compat_test

import (
	"os"
	"testing"

	"loxilb/test/net/rig"
)

// TestMain builds the programs under test.
func TestMain(m *testing.M) { os.Exit(rig.Main(m)) }

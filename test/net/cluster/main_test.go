// Package cluster_test tests nodes behind an ECMP router that exchange connections: which
// connections survive failures of nodes and networks.
package cluster_test

import (
	"flag"
	"os"
	"regexp"
	"testing"

	"loxilb/test/net/rig"
)

// TestMain builds the programs under test.
func TestMain(m *testing.M) {
	flag.Func("cases", "run only the cases that match this regular expression", func(s string) (err error) {
		chosen, err = regexp.Compile(s)
		return err
	})
	os.Exit(rig.Main(m))
}

var chosen = regexp.MustCompile("")

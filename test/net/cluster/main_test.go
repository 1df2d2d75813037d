// Package cluster_test tests whether connections survive failures of nodes and links, if nodes
// behind an ECMP router exchange their connections.
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
		caseFilter, err = regexp.Compile(s)
		return err
	})
	os.Exit(rig.Main(m))
}

// caseFilter selects the cases that run, by their names.
var caseFilter = regexp.MustCompile("")

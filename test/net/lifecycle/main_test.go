// Package lifecycle_test tests starts, restarts, kills and upgrades of the daemon, and its behavior
// without memory, disk space or descriptors.
package lifecycle_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"loxilb/test/net/rig"
	"loxilb/test/steps"
)

// TestMain builds the programs under test, unless this process is one of its own helpers.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == steps.Arg {
		fmt.Fprintln(os.Stderr, steps.Exec(os.Args[2:])) // returns only if it has failed
		os.Exit(1)
	}
	flag.Int(soakFlag, 0, "seconds that TestSoak runs")
	flag.String(otherVersionFlag, "", "directory with loxilb and loxicmd of another version, for TestUpgrade")
	flag.Int(killFlag, 0, "kill the daemon before this step only")
	os.Exit(rig.Main(m))
}

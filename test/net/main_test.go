// Package net_test runs loxilb in the standard topology of netnstest and puts real sockets through it.
package net_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"loxilb/test/steps"
)

// binDir is where TestMain has built loxilb and loxicmd.
const binDir = "NETTEST_BIN"

// TestMain builds the programs under test, unless this process is one of its own helpers.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == holdArg {
		os.Exit(holdMain(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == steps.Arg {
		fmt.Fprintln(os.Stderr, steps.Exec(os.Args[2:])) // returns only if it has failed
		os.Exit(1)
	}
	flag.Bool(longFlag, false, "run the tests too that take a minute and a gigabyte")
	flag.Int(soakFlag, 0, "seconds that TestSoak goes on")
	flag.Uint64(seedFlag, 0, "begin random tests by this number")
	flag.String(otherFlag, "", "a directory with loxilb and loxicmd of another version, for TestUpgrade")
	flag.Int(killFlag, 0, "kill the daemon before the step of this number only")
	os.Exit(buildAndRun(m))
}

// longFlag is set by make test-long.
const longFlag = "long"

// long leaves the test out of make test.
func long(t *testing.T) {
	t.Helper()
	if !isLong() {
		t.Skip("make test-long runs it")
	}
}

func isLong() bool { return flag.Lookup(longFlag).Value.String() == "true" }

// seedFlag repeats what a test of random things has done.
const seedFlag = "seed"

// seeded is a source of random numbers, which the test says how to repeat.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := flag.Lookup(seedFlag).Value.(flag.Getter).Get().(uint64)
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed=%d repeats it", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "nettest")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // other users run loxicmd too
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	build := exec.Command(filepath.Join("..", "..", "tools", "go"), "build", "-trimpath", "-o", dir+"/", "../../cmd/...")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build loxilb: %v\n%s", err, out)
		return 1
	}
	if err := os.Setenv(binDir, dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

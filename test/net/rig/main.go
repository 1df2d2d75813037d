package rig

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Root is the path of the repository, relative to a package below test/net.
const Root = "../../.."

// Main builds the programs under test, runs the tests of a package, and returns the exit status for
// its TestMain. If NETTEST_BIN is set, as in the guests of test/kernels, Main uses the programs in
// that directory instead.
func Main(m *testing.M) int {
	flag.Bool(longFlag, false, "also run tests that take minutes or a gigabyte")
	flag.Uint64(seedFlag, 0, "seed of random tests; 0: a different one each time")
	defer idle.close()
	if Bin() != "" {
		return m.Run()
	}
	dir, err := build()
	if err != nil {
		fmt.Fprintln(os.Stderr, "build loxilb:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := os.Setenv(binDirVariable, dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// binDirVariable is the environment variable with the directory of loxilb and loxicmd.
const binDirVariable = "NETTEST_BIN"

// Bin returns the directory of loxilb and loxicmd.
func Bin() string { return os.Getenv(binDirVariable) }

// Program returns the path of loxilb or loxicmd.
func Program(name string) string { return filepath.Join(Bin(), name) }

// build builds the programs into bin/test and copies them from there, so edits during the
// tests do not affect them.
func build() (dir string, err error) {
	root, err := filepath.Abs(Root)
	if err != nil {
		return "", err
	}
	common := filepath.Join(root, "bin", "test")
	if err := os.MkdirAll(common, 0o755); err != nil {
		return "", err
	}
	lock, err := os.Open(common)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", common, err)
	}
	build := exec.Command(filepath.Join(root, "tools", "go"), "build", "-trimpath", "-o", common+"/", "./cmd/...")
	build.Dir = root // the tests may be of another module
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	if dir, err = os.MkdirTemp("", "nettest"); err != nil {
		return "", err
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.CopyFS(dir, os.DirFS(common))); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return dir, nil
}

// longFlag is the flag that make test-long sets.
const longFlag = "long"

// Long skips the test unless make test-long runs it.
func Long(t *testing.T) {
	t.Helper()
	if !IsLong() {
		t.Skip("make test-long runs it")
	}
}

// IsLong reports whether tests may take minutes.
func IsLong() bool { return flag.Lookup(longFlag).Value.String() == "true" }

// seedFlag is the flag that repeats a random test.
const seedFlag = "seed"

// Seeded returns a source of random numbers. A failed test prints the flag that repeats it.
func Seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := flag.Lookup(seedFlag).Value.(flag.Getter).Get().(uint64)
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed=%d repeats it", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

package main

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"loxilb/internal/kernel/datapath/pins"
)

// TestLockOfEndingDaemon checks that a start right after `kill -9` waits for the lock of the ending
// daemon, and gives up soon if that daemon stays.
func TestLockOfEndingDaemon(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root creates a pin directory")
	}
	root, err := pins.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "loxilb-pins-test-"+strconv.Itoa(os.Getpid()))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	first, err := pins.Acquire(dir)
	if err != nil {
		t.Fatal(err)
	}
	ended := time.AfterFunc(5*lockRetry, func() { _ = first.Release() })
	defer ended.Stop()
	second, err := acquirePins(t.Context(), dir)
	if err != nil {
		t.Fatalf("the start while the first daemon ends: %v", err)
	}
	if third, err := acquirePins(t.Context(), dir); err == nil {
		t.Error("two daemons have the lock", third.Release())
	}
	if err := second.Release(); err != nil {
		t.Error(err)
	}
}

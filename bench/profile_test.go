package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
)

const instructionsFile = "testdata/instructions.txt"

// TestInstructions compares the BPF instructions of each path with those in a file. They are exact,
// whatever else the machine does: a change that makes packets more expensive shows here, and is
// either fixed, or accepted by UPDATE=1. A search for a free source port takes as
// many as it needs, so a fiftieth is allowed.
func TestInstructions(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the namespace ends with the thread
		testInstructions(t)
	}()
	<-done
}

func testInstructions(t *testing.T) {
	p, err := newProfiler()
	if err != nil {
		t.Error(err)
		return
	}
	defer func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
	}()
	var got strings.Builder
	for i, path := range paths() {
		if path.under.includes(many) {
			continue
		}
		fewest, err := p.fewest(path, i)
		if err != nil {
			t.Errorf("%s: %v", path.name, err)
			return
		}
		fmt.Fprintf(&got, "%5d %s\n", fewest.total, path.name)
	}
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(instructionsFile, []byte(got.String()), 0o644); err != nil {
			t.Error(err)
		}
		return
	}
	want, err := os.ReadFile(instructionsFile)
	if err != nil {
		t.Error(err)
		return
	}
	compareInstructions(t, got.String(), string(want))
}

func compareInstructions(t *testing.T, got, want string) {
	gots, wants := strings.Split(got, "\n"), strings.Split(want, "\n")
	if len(gots) != len(wants) {
		t.Errorf("%d paths, %s has %d: run with UPDATE=1", len(gots)-1, instructionsFile, len(wants)-1)
		return
	}
	for i, line := range gots {
		if line == "" {
			continue
		}
		var now, then int
		if _, err := fmt.Sscan(line, &now); err != nil {
			t.Error(err)
		}
		if _, err := fmt.Sscan(wants[i], &then); err != nil {
			t.Error(err)
		}
		if line[6:] != wants[i][6:] {
			t.Errorf("path %q, in %s %q", line[6:], instructionsFile, wants[i][6:])
		}
		if diff := now - then; diff > then/50 || -diff > then/50 {
			t.Errorf("%s: %d instructions, not %d: fix it, or run with UPDATE=1", line[6:], now, then)
		}
	}
}

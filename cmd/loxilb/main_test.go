package main

import (
	"os"
	"os/exec"
	"testing"
)

// TestBrokenStandardError checks that the process does not end when it writes to standard error
// after the reader has died.
func TestBrokenStandardError(t *testing.T) {
	const child = "LOXILB_TEST_BROKEN_STDERR"
	if os.Getenv(child) != "" {
		os.Args = []string{"loxilb", "--no-such-flag"}
		main() // writes an error and exits with 2
	}
	t.Parallel()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBrokenStandardError$")
	cmd.Env, cmd.Stderr = append(os.Environ(), child+"=1"), writer
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != 2 {
		t.Errorf("the process ended with %v, want exit code 2", err)
	}
}

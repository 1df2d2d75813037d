package main

import (
	"testing"

	"loxilb/internal/kernel/datapath/bpf"
)

// TestLeftOut checks that the counting copy has a function to leave out: without that, it has one
// map more than the kernel allows.
func TestLeftOut(t *testing.T) {
	t.Parallel()
	spec, err := bpf.LoadTc()
	if err != nil {
		t.Fatal(err)
	}
	program := spec.Programs[programName].Instructions
	if out, err := withoutFunction(program, omittedFunction); err != nil || len(out) >= len(program) {
		t.Errorf("%d of %d instructions: %v", len(out), len(program), err)
	}
	if _, err := withoutFunction(program, "no_such_function"); err == nil {
		t.Error("a missing function of the program is not reported")
	}
}

package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestObjectsIn: mistakes are compiled into every object that tests load, also those that a macro
// makes of a program.
func TestObjectsIn(t *testing.T) {
	t.Parallel()
	top := "../../" + objects
	text, err := os.ReadFile(top + "/gen.go")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range objectsIn(string(text)) {
		got = append(got, filepath.Join(top, o.name+"_bpfel.o.gz"))
	}
	slices.Sort(got)
	want, err := filepath.Glob(top + "/*.o.gz")
	if err != nil || len(want) == 0 {
		t.Fatalf("objects in %s: %v, %v", top, want, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	sctp := object{"tcsctp", "bpf/tc.bpf.c", []string{"-DTRACING=1", "-DONLY_SCTP=1"}}
	if !slices.ContainsFunc(objectsIn(string(text)), func(o object) bool { return cmp.Equal(sctp, o, cmp.AllowUnexported(object{})) }) {
		t.Errorf("no object %v", sctp)
	}
}

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLinked checks that the bill lists each module, replaced ones by their replacement, and Go's
// library.
func TestLinked(t *testing.T) {
	t.Parallel()
	info,
		err := debug.ParseBuildInfo("path\tloxilb/cmd/loxilb\nmod\tloxilb\t(devel)\t\ndep\ta.example/one\tv1.0.0\th1:x=\ndep\ta.example/two\tv2.0.0\n=>\tb.example/fork\tv2.0.1\th1:y=\n")
	if err != nil {
		t.Fatal(err)
	}
	info.GoVersion = "go1.26.8"
	var got []string
	for _, c := range linked(info) {
		got = append(got, c.PURL)
	}
	want := []string{"pkg:golang/a.example/one@v1.0.0", "pkg:golang/b.example/fork@v2.0.1", "pkg:golang/std@1.26.8"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the result differs (-want +got):\n%s", diff)
	}
}

// TestBill checks that a program's bill refers only to its own parts, and is reproducible.
func TestBill(t *testing.T) {
	t.Parallel()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var text, again bytes.Buffer
	for _, out := range []*bytes.Buffer{&text, &again} {
		if err := write(out, "1.2.3", "2026-12-31T23:59:59Z", []string{path}); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(text.String(), again.String()); diff != "" {
		t.Errorf("the second bill of materials differs: %s", diff)
	}
	var b bill
	if err := json.Unmarshal(text.Bytes(), &b); err != nil {
		t.Fatal(err)
	}
	refs := []string{b.Metadata.Component.Ref}
	for _, c := range b.Components {
		refs = append(refs, c.Ref)
	}
	for _, d := range b.Dependencies {
		for _, ref := range append(d.On, d.Ref) {
			if !slices.Contains(refs, ref) {
				t.Errorf("%s is missing", ref)
			}
		}
	}
}

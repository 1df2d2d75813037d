package main

import (
	"strings"
	"testing"
)

func TestPromises(t *testing.T) {
	t.Parallel()
	const first = "package a\n\n// TestA does something.\n//\n// P1 nothing | ever\n// breaks\nfunc TestA(t *testing.T) {}\n\n// P2 more\nfunc TestB(t *testing.T) {}\n"
	const second = "package b\n\n// P1\nfunc TestC(t *testing.T) {}\n\n// P3 no test\nfunc other() {}\n"
	found := promises{}
	for _, source := range []string{first, second} {
		if err := found.collect([]byte(source)); err != nil {
			t.Fatal(err)
		}
	}
	page, err := found.page()
	if err != nil {
		t.Fatal(err)
	}
	const want = "- `P1`: nothing | ever breaks\n- `P2`: more\n"
	if !strings.HasSuffix(page, " some.\n\n## Promises\n\n"+want) {
		t.Errorf("the page is\n%s", page)
	}
}

// TestPromisesRefused checks that errors that could hide a promise without a test are refused.
func TestPromisesRefused(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"// P2 a\nfunc TestA(t *testing.T) {}\n":                                         "promise 1 has no test, and 2 has one",
		"// P1\nfunc TestA(t *testing.T) {}\n":                                           "promise 1 has no sentence",
		"// P1 a\nfunc TestA(t *testing.T) {}\n\n// P1 b\nfunc TestB(t *testing.T) {}\n": `promise 1: two sentences: "a" and "b"`,
	} {
		found := promises{}
		err := found.collect([]byte("package x\n\n" + source))
		if err == nil {
			_, err = found.page()
		}
		if err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", source, err, want)
		}
	}
}

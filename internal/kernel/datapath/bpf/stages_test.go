package bpf

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const sources = "../../../../bpf"

// TestStages checks that each stage of the packet path includes only headers of stages that
// bpf/stages.h lists before it, and that the list has every folder.
func TestStages(t *testing.T) {
	t.Parallel()
	stages := listedStages(t)
	folders, err := filepath.Glob(filepath.Join(sources, "*", "*.h"))
	if err != nil || len(folders) == 0 {
		t.Fatalf("no headers in the folders of %s: %v", sources, err)
	}
	for _, file := range folders {
		stage := filepath.Base(filepath.Dir(file))
		level := slices.Index(stages, stage)
		if level < 0 {
			t.Errorf("bpf/stages.h does not list %s", stage)
			continue
		}
		for _, included := range includes(t, file) {
			of, _, inFolder := strings.Cut(included, "/")
			if inFolder && slices.Index(stages, of) > level {
				t.Errorf("%s includes %s: bpf/stages.h lists %s after %s", file, included, of, stage)
			}
		}
	}
	for _, stage := range stages {
		if _, err := os.Stat(filepath.Join(sources, stage)); err != nil {
			t.Errorf("bpf/stages.h lists %s: %v", stage, err)
		}
	}
}

// listedStages returns the stages of bpf/stages.h in their order.
func listedStages(t *testing.T) []string {
	t.Helper()
	return matches(t, filepath.Join(sources, "stages.h"), `(?m)^ \*\t(\w+)  +\w`)
}

// includes returns the project's own headers that a file includes.
func includes(t *testing.T, file string) []string {
	t.Helper()
	return matches(t, file, `(?m)^#include "([^"]+)"`)
}

// matches returns the first group of each match of a pattern in a file.
func matches(t *testing.T, file, pattern string) (found []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(pattern).FindAllSubmatch(text, -1) {
		found = append(found, string(m[1]))
	}
	return found
}

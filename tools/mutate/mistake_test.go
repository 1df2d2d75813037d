package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMistakesOf(t *testing.T) {
	t.Parallel()
	for line, want := range map[string][]string{
		"\tif a < b {":                {"\tif a <= b {"},
		"\tif a && b == 7 {":          {"\tif a && b != 7 {", "\tif a || b == 7 {", "\tif a && b == 8 {"},
		"\tl.mu.Lock()":               {""},
		"\tdefer l.mu.Unlock()":       {""},
		"\tt->unfinished = m.failed;": {""},
		"\tn++":                       {""},
		"\tx := f()":                  nil,
		"\treturn f(x)":               nil,
		"\tcase f(x):":                nil,
		"\ts := \"a < b\" // c > d 5": nil,
		"\t// a < b":                  nil,
		"#define PORTS (65536 - 1024)": {
			"#define PORTS (65536 + 1024)", "#define PORTS (65537 - 1024)",
		},
	} {
		if diff := cmp.Diff(want, mistakesOf(line)); diff != "" {
			t.Errorf("%q: -want +got\n%s", line, diff)
		}
	}
}

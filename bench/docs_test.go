package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDocumentsShowResults checks that the numbers in documents are those of the committed results
// (make bench-docs).
func TestDocumentsShowResults(t *testing.T) {
	for _, path := range []string{"../docs/performance.md"} {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(b), "<!-- results "); n == 0 || n != len(block.FindAllString(string(b), -1)) {
			t.Errorf("%s has %d blocks of results, and not all of them end", path, n)
		}
		want, err := fillBlocks(string(b), filepath.Dir(path), "results")
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, string(b)); d != "" {
			t.Errorf("%s is not up to date: make bench-docs\n%s", path, d)
		}
	}
}

// TestMarkdownSaysWhatIsBetter checks that a latency is in the table, marked as "less is better".
func TestMarkdownSaysWhatIsBetter(t *testing.T) {
	r := example(0.9)
	for i := range r.Samples {
		r.Samples[i].Work = "qperf-lat"
	}
	got := markdown(r)
	if !strings.Contains(got, "one CPU (less is better) | 11,000 us | 0.91x (0.90 to 0.92) |") {
		t.Errorf(`got %v, want "one CPU (less is better) | 11,000 us | 0.91x (0.90 to 0.92) |" in got`, got)
	}
	r.Samples = slices.DeleteFunc(r.Samples, func(s sample) bool { return s.Contender == baseline })
	if got := markdown(r); strings.Contains(got, "less is better") {
		t.Errorf("a line without plain routing:\n%s", got)
	}
}

func TestFillBlocks(t *testing.T) {
	dir := t.TempDir()
	if err := example(1.2).write(dir); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"other.json", "other.txt"} {
		if err := os.WriteFile(filepath.Join(dir, f), []byte("{}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const before = "a\n<!-- results example -->\nold\n<!-- end -->\nb\n<!-- results other -->\n<!-- end -->\n<!-- results none -->\n<!-- end -->\nc\n" +
		"<!-- results example chart -->\n<!-- end -->\n<!-- results example: | measure; |--- -->\n<!-- end -->\n"
	got, err := fillBlocks(before, dir, dir)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "blocks.golden", got)
	if again, err := fillBlocks(got, dir, dir); err != nil || again != got {
		t.Errorf("filling twice: %v\n%s", err, cmp.Diff(got, again))
	}
}

package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestGlossary checks that the words are in alphabetical order, and that each identifier in the
// third column exists in the sources.
func TestGlossary(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("glossary.md")
	if err != nil {
		t.Fatal(err)
	}
	sources := identifiers(t)
	var words []string
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if len(cells) != 3 || strings.Contains(cells[0], "---") || cells[0] == " word" {
			continue
		}
		words = append(words, strings.ToLower(strings.TrimSpace(cells[0])))
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[2], -1) {
			if !sources[m[1]] {
				t.Errorf("%s: no source has %s", cells[0], m[1])
			}
		}
	}
	if len(words) < 25 || !slices.IsSorted(words) {
		t.Errorf("%d words, sorted: %t", len(words), slices.IsSorted(words))
	}
}

// identifiers collects the words of the sources, except those of tests.
func identifiers(t *testing.T) map[string]bool {
	t.Helper()
	found, word := map[string]bool{}, regexp.MustCompile(`[A-Za-z_]\w+`)
	for _, root := range []string{"../bpf", "../internal", "../cmd"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") || !slices.Contains([]string{".go", ".h", ".c"}, filepath.Ext(path)) {
				return err
			}
			text, err := os.ReadFile(path)
			for _, w := range word.FindAllString(string(text), -1) {
				found[w] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

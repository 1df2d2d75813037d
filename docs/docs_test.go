// Package docs_test compares the documents with the code.
package docs_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMap checks that architecture.md has a line for each package below internal, and for no other.
func TestMap(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "\n    internal/\n")
	list, _, found := strings.Cut(after, "\n    api/")
	if !found {
		t.Fatal("architecture.md has no list of what is below internal/")
	}
	drawn := packagesDrawn(list)
	there := packagesThere(t)
	for _, name := range there {
		if !slices.Contains(drawn, name) {
			t.Errorf("architecture.md does not have internal/%s", name)
		}
	}
	for _, name := range drawn {
		if !slices.Contains(there, name) && !slices.ContainsFunc(there, func(other string) bool { return strings.HasPrefix(other, name+"/") }) {
			t.Errorf("architecture.md has internal/%s, which is not there", name)
		}
	}
	if len(there) < 50 {
		t.Errorf("only %d packages were found", len(there))
	}
}

// TestIndex checks that README.md has a line for each document and each decision, the decisions in
// order.
func TestIndex(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, m := range regexp.MustCompile(`\]\((adr/\d{4}-[^)]+)\)`).FindAllStringSubmatch(string(text), -1) {
		listed = append(listed, m[1])
	}
	decisions, err := filepath.Glob("adr/*.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(decisions, listed); diff != "" {
		t.Errorf("docs/adr, and what README.md lists of it:\n%s", diff)
	}
	documents, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range documents {
		if name != "README.md" && !strings.Contains(string(text), "]("+name+")") {
			t.Errorf("README.md does not list %s", name)
		}
	}
}

// packagesDrawn returns the folders of a list in which each level is indented by two more spaces.
func packagesDrawn(list string) (names []string) {
	const outermost, step = 6, 2
	var above []string
	for _, m := range regexp.MustCompile(`(?m)^( {6,12})([a-z0-9]+(?:, [a-z0-9]+)*) {2,}\S`).FindAllStringSubmatch(list, -1) {
		depth := (len(m[1]) - outermost) / step
		above = above[:min(depth, len(above))]
		for name := range strings.SplitSeq(m[2], ", ") {
			names = append(names, path.Join(append(slices.Clone(above), name)...))
		}
		above = append(above, m[2])
	}
	return names
}

// packagesThere returns the folders that contain Go files other than tests.
func packagesThere(t *testing.T) (names []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS("../internal"), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Name() == "testdata" {
			return fs.SkipDir
		}
		if folder := path.Dir(name); strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") && !slices.Contains(names, folder) {
			names = append(names, folder)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

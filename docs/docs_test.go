// Package docs_test compares the documents with the code.
package docs_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestMap checks that architecture.md has each room of internal, and that each package has a
// comment "Package NAME ...": `go list` shows these as the list of packages.
func TestMap(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "\n    internal/ ")
	list, _, found := strings.Cut(after, "\n    kube/")
	if !found {
		t.Fatal("architecture.md has no list of what is below internal/")
	}
	packages := packagesThere(t)
	for name, isDescribed := range packages {
		room, _, _ := strings.Cut(name, "/")
		if !regexp.MustCompile(`(?m)^      (\w+, )*` + room + `\b`).MatchString(list) {
			t.Errorf("architecture.md does not have the room internal/%s", room)
		}
		if !isDescribed {
			t.Errorf("internal/%s has no comment that begins with: Package %s", name, path.Base(name))
		}
	}
	if len(packages) < 50 {
		t.Errorf("only %d packages were found", len(packages))
	}
}

// TestIndex checks that README.md lists each document.
func TestIndex(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
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

// packagesThere returns the folders of internal that contain Go files other than tests, and whether
// one of the files describes the package.
func packagesThere(t *testing.T) map[string]bool {
	t.Helper()
	packages := map[string]bool{}
	err := fs.WalkDir(os.DirFS("../internal"), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Name() == "testdata" {
			return fs.SkipDir
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("../internal", name), nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		folder := path.Dir(name)
		packages[folder] = packages[folder] || strings.HasPrefix(file.Doc.Text(), "Package "+file.Name.Name+" ")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return packages
}

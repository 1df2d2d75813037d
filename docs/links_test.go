package docs_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestLinks checks that the targets of links in the repository's Markdown files exist: files,
// folders, pictures and headings.
func TestLinks(t *testing.T) {
	t.Parallel()
	links, anchors := 0, map[string][]string{}
	for _, file := range markdownFiles(t) {
		text, err := os.ReadFile(filepath.Join("..", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, target := range linksOf(string(text)) {
			links++
			name, anchor, _ := strings.Cut(target, "#")
			to := file
			if name != "" {
				to = path.Join(path.Dir(file), name)
			}
			if _, err := os.Stat(filepath.Join("..", to)); err != nil {
				t.Errorf("%s: %s is missing", file, target)
				continue
			}
			if anchor == "" || path.Ext(to) != ".md" {
				continue
			}
			if anchors[to] == nil {
				anchors[to] = anchorsOf(t, to)
			}
			if !slices.Contains(anchors[to], anchor) {
				t.Errorf("%s: %s has no heading #%s", file, to, anchor)
			}
		}
	}
	if links < 500 {
		t.Errorf("only %d links were found", links)
	}
}

// markdownFiles returns the repository's Markdown files, relative to its root.
func markdownFiles(t *testing.T) (files []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(".."), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == "bin" || name == ".git" || d.Name() == "node_modules"):
			return fs.SkipDir
		case path.Ext(name) == ".md":
			files = append(files, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// linksOf returns the targets in a text that are in the repository.
func linksOf(text string) (targets []string) {
	text = regexp.MustCompile("(?ms)^```.*?^```|`[^`\n]*`").ReplaceAllString(text, "")
	for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)|src="([^"]+)"`).FindAllStringSubmatch(text, -1) {
		if target := m[1] + m[2]; !strings.Contains(target, "://") && !strings.HasPrefix(target, "mailto:") {
			targets = append(targets, target)
		}
	}
	return targets
}

// anchorsOf returns the anchors of a file's headings, as GitHub and GitLab name them.
func anchorsOf(t *testing.T, file string) (anchors []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", file))
	if err != nil {
		t.Fatal(err)
	}
	prose := regexp.MustCompile("(?ms)^```.*?^```").ReplaceAllString(string(text), "")
	link := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	other := regexp.MustCompile(`[^\p{L}\p{N}\- _]`)
	seen := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^#{1,6} (.*)$`).FindAllStringSubmatch(prose, -1) {
		anchor := strings.ReplaceAll(other.ReplaceAllString(strings.ToLower(link.ReplaceAllString(m[1], "$1")), ""), " ", "-")
		if n := seen[anchor]; n > 0 {
			anchors = append(anchors, anchor+"-"+strconv.Itoa(n))
		} else {
			anchors = append(anchors, anchor)
		}
		seen[anchor]++
	}
	return anchors
}

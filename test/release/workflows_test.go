package release

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestWorkflows checks that workflows name actions of others by the digest of a commit, which
// cannot be moved, and that their make targets exist.
func TestWorkflows(t *testing.T) {
	t.Parallel()
	list, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil || len(list) == 0 {
		t.Fatalf("%d workflows, %v", len(list), err)
	}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range list {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		uses := regexp.MustCompile(`(?m)\buses:.*$`).FindAllString(string(text), -1)
		if len(uses) == 0 {
			t.Errorf("%s uses no action", path)
		}
		for _, line := range uses {
			if !regexp.MustCompile(`^uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`).MatchString(line) {
				t.Errorf("%s: %s: no digest of a commit, with its version behind it", path, line)
			}
		}
		for _, m := range regexp.MustCompile(`(?m)\bmake ([a-z-]+)$`).FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(string(makefile), "\n"+m[1]+":") {
				t.Errorf("%s: make has no target %s", path, m[1])
			}
		}
	}
}

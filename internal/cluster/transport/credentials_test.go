package transport

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReload checks that a changed key is used once two calls have read it, and that files that
// cannot be used change nothing: connections would end for nothing.
func TestReload(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "key")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(strings.Repeat("a", minKeySize))
	c, err := KeyFile(path, "node1")
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		text    string
		changed [2]bool
		problem bool
	}{
		{"short", [2]bool{}, true},
		{strings.Repeat("b", minKeySize), [2]bool{false, true}, false},
		{strings.Repeat("b", minKeySize), [2]bool{}, false},
		{"short", [2]bool{}, true},
	} {
		write(step.text)
		if got := [2]bool{c.Reload(), c.Reload()}; got != step.changed || (c.Problem() != nil) != step.problem {
			t.Errorf("key %q: changed %v, problem %v", step.text, got, c.Problem())
		}
	}
}

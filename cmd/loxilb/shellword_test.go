package main

import (
	"os/exec"
	"testing"
)

// TestShellWord checks that bash reads a quoted word unchanged.
func TestShellWord(t *testing.T) {
	t.Parallel()
	for _, word := range []string{
		"/loxilb/service/20.20.20.1:80/tcp", "/loxilb/service/[fd00::1]:80/tcp", "a b", "", "'; id; '", "\x1b[31mred\nline", `back\slash "quoted"`, "$(id)`id`", "größe", "\xff\x00"[:1],
	} {
		out, err := exec.CommandContext(t.Context(), "bash", "-c", "printf %s "+shellWord(word)).Output() //nolint:gosec // the word is what is tested
		if err != nil || string(out) != word {
			t.Errorf("bash reads %q of %q as %q: %v", shellWord(word), word, out, err)
		}
	}
}

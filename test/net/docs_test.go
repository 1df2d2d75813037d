package net_test

import (
	"os"
	"strings"
	"testing"
)

// TestDocs runs the commands of the documentation, in the order written, on an empty balancer for each page.
func TestDocs(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"../../README.md", "../../docs/operations.md"} {
		t.Run(page[len("../../"):], func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			r := newRig(t, options{})
			n := 0
			for line := range strings.Lines(string(text)) {
				command, ok := strings.CutPrefix(line, "    loxicmd ")
				if !ok {
					continue
				}
				command, _, _ = strings.Cut(command, " #")
				if _, err := r.Command(strings.Fields(command)...); err != nil {
					t.Errorf("loxicmd %s: %v", strings.TrimSpace(command), err)
				}
				n++
			}
			if n < 4 {
				t.Errorf("%d commands", n)
			}
			if p := strings.Contains(r.Log(), "level=ERROR"); p {
				t.Error("a command made the daemon complain")
			}
		})
	}
}

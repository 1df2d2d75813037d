package main

import (
	"os"
	"strings"
	"testing"

	"loxilb/tools/markdown"
)

// TestCompatibility checks that both pages have the table's content (make generate), and that only
// the manual page has what is better.
func TestCompatibility(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"compatibility.md": compatibility(false), "man/loxilb-compatibility.7": markdown.Manual("loxilb-compatibility", compatibility(true))} {
		text, err := os.ReadFile("../../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if string(text) != want {
			t.Errorf("docs/%s is not what the table makes: tools/go generate ./tools/refdoc", name)
		}
	}
	if strings.Contains(compatibility(false), "*better*: ") || !strings.Contains(compatibility(true), "*better*: ") {
		t.Error("the document lists improvements, which belong in the manual page")
	}
}

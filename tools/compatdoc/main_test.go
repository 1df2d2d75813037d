package main

import (
	"os"
	"strings"
	"testing"
)

// TestPage checks that both pages have the table's content (make generate), and that only the
// manual page has what is better.
func TestPage(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"compatibility.md": page(false), "man/loxilb-compatibility.7": manual()} {
		text, err := os.ReadFile("../../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if string(text) != want {
			t.Errorf("docs/%s is not what the table makes: tools/go generate ./tools/compatdoc", name)
		}
	}
	if strings.Contains(page(false), "*better*: ") || !strings.Contains(page(true), "*better*: ") {
		t.Error("the document lists improvements, which belong in the manual page")
	}
}

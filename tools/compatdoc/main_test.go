package main

import (
	"os"
	"testing"
)

// TestPage checks that the page has the table's content (make generate).
func TestPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/compatibility.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != page() {
		t.Error("docs/compatibility.md is not what the table makes: tools/go generate ./tools/compatdoc")
	}
}

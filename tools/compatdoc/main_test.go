package main

import (
	"os"
	"testing"
)

// The page is what the table says: make generate.
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

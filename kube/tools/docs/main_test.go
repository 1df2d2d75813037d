package main

import (
	"os"
	"testing"
)

// TestDocument checks that the tables of the document are those of the code.
func TestDocument(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../../docs/kubernetes-controller.md")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := replace(string(data)); err != nil || text != string(data) {
		t.Errorf("docs/kubernetes-controller.md is out of date (%v): go generate ./tools/docs, in kube/", err)
	}
}

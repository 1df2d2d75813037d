package compat_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"loxilb/test/net/rig"
)

// TestDocs runs the commands of the documentation, in the order written, on an empty balancer for each page.
func TestDocs(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"README.md", "docs/operations.md", "docs/replace-loxilb.md"} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(filepath.Join(rig.Root, page))
			if err != nil {
				t.Fatal(err)
			}
			r := rig.New(t, rig.Options{})
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

// TestLogTable: what docs/operations.md says that the log says, the code says.
func TestLogTable(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(rig.Root, "docs/operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, dir := range []string{"internal", "cmd"} {
		err := filepath.WalkDir(filepath.Join(rig.Root, dir), func(path string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			code.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	_, table, _ := strings.Cut(string(page), "| the log says |")
	table, _, _ = strings.Cut(table, "\n\n")
	messages := 0
	for row := range strings.Lines(table) {
		cell := strings.Split(row, "|")
		if len(cell) < 2 {
			continue
		}
		first, _, _ := strings.Cut(cell[1], " with ") // the keys of the message
		for i, message := range strings.Split(first, "`") {
			if message = strings.TrimPrefix(message, "... "); i%2 == 0 {
				continue
			}
			messages++
			if !strings.Contains(code.String(), message) {
				t.Errorf("no part of the code logs %q", message)
			}
		}
	}
	if messages < 10 {
		t.Errorf("%d messages", messages)
	}
}

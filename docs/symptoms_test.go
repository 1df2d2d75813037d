package docs_test

import (
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestSymptoms checks that each message that troubleshooting.md quotes exists in the code; `...`
// matches any text.
func TestSymptoms(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	table, log, _ := strings.Cut(string(text), "## What the log says")
	_, table, _ = strings.Cut(table, "| symptom | command | output |")
	table, _, _ = strings.Cut(table, "\n\n")
	code := sources(t)
	phrases := 0
	for row := range strings.Lines(table) {
		cells := strings.Split(row, "|")
		if len(cells) < 4 {
			continue
		}
		for i, phrase := range strings.Split(cells[3], "`") {
			if i%2 == 0 {
				continue
			}
			phrases++
			for part := range strings.SplitSeq(phrase, "...") {
				if part = strings.TrimSpace(strings.Trim(part, " ,:")); !strings.Contains(code, part) {
					t.Errorf("the code has no sentence with %q", part)
				}
			}
		}
	}
	for _, m := range regexp.MustCompile("`([a-z]+(?:[ ;,]+[a-z]+){2,})`").FindAllStringSubmatch(log, -1) {
		phrases++
		if !strings.Contains(code, m[1]) {
			t.Errorf("the code logs nothing like %q", m[1])
		}
	}
	if phrases < 18 {
		t.Errorf("only %d phrases were found", phrases)
	}
}

// sources returns the code of the programs that users run, with verbs of formats replaced by
// spaces.
func sources(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	err := fs.WalkDir(os.DirFS("../internal"), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile("../internal/" + name)
		b.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`%[a-z]`).ReplaceAllString(b.String(), " ")
}

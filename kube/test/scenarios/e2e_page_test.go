package scenarios

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// specTables returns the tables of testdata/specs.txt by their marks. Each function reports whether
// a spec belongs to the table.
func specTables() map[string]func(name string) bool {
	balancer := func(name string) bool { return strings.Contains(name, "LoadBalancer") }
	return map[string]func(string) bool{
		"kube-loxilb": balancer,
		"kube-proxy":  func(name string) bool { return !balancer(name) },
	}
}

// compareSpecs compares results with testdata/specs.txt, or updates the file.
func compareSpecs(t *testing.T, results []spec) {
	t.Helper()
	slices.SortFunc(results, func(a, b spec) int { return strings.Compare(a.name(), b.name()) })
	data, err := os.ReadFile(specsFile)
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	for mark, has := range specTables() {
		begin, end := "<!-- "+mark+" -->\n", "<!-- end of "+mark+" -->"
		before, rest, ok := strings.Cut(page, begin)
		table, after, ok2 := strings.Cut(rest, end)
		if !ok || !ok2 {
			t.Fatalf("%s has no marks of %s", specsFile, mark)
		}
		written := "| spec | | |\n|---|---|---|\n"
		for _, one := range results {
			if !has(one.name()) {
				continue
			}
			state, why := rowOf(table, one.name())
			if state != one.State && os.Getenv("UPDATE") == "" {
				t.Errorf("%s: %s, want %q as in the table: %s", one.name(), one.State, state, one.Failure.Message)
			}
			if one.State == "skipped" && why == "" {
				why = strings.TrimSpace(strings.ReplaceAll(one.Failure.Message, "\n", " "))
			} else if one.State == "passed" {
				why = one.note
			}
			written += fmt.Sprintf("| %s | %s | %s |\n", one.name(), one.State, why)
		}
		if os.Getenv("SPECS") == "" {
			page = before + begin + written + end + after
		}
	}
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(specsFile, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// rowOf returns the state of a spec in a table, and the reason.
func rowOf(table, name string) (state, why string) {
	row := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(name) + ` \| (\w+) \| (.*?) ?\|$`).FindStringSubmatch(table)
	if row == nil {
		return "", ""
	}
	return row[1], row[2]
}

package internal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"strings"
	"testing"
)

// sleeps lists how often the tests of a file wait for a time to pass. A new entry needs a reason
// why neither a condition (test/await) nor a fake clock (testing/synctest) will do.
func sleeps() map[string]int {
	return map[string]int{
		"test/net/lifecycle/soak_ends_test.go": 1, // generates traffic
		"test/net/network/fulltable_test.go":   2, // measures CPU time at rest
		"test/net/page/fixture_test.go":        1, // plots fill, for screenshots
	}
}

// TestSleeps checks that tests sleep only where sleeps lists it, in loops that retry or generate
// traffic, and where the clock is a fake one.
func TestSleeps(t *testing.T) {
	t.Parallel()
	left := sleeps()
	for _, room := range []string{"bench", "cmd", "docs", "internal", "test", "tools"} {
		err := filepath.WalkDir(filepath.Join("..", room), func(path string, _ fs.DirEntry, err error) error {
			name := strings.TrimPrefix(path, "../")
			if err != nil || !strings.HasSuffix(name, ".go") || room != "test" && !strings.HasSuffix(name, "_test.go") {
				return err
			}
			for _, at := range findSleeps(t, path) {
				if left[name]--; left[name] < 0 {
					t.Errorf("%s: a test sleeps: wait for a condition (test/await), or use testing/synctest", at)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	maps.DeleteFunc(left, func(_ string, n int) bool { return n <= 0 })
	if len(left) > 0 {
		t.Errorf("listed, and no longer there: %v", left)
	}
}

// findSleeps returns where a file calls time.Sleep outside loops; nothing, if it has a fake clock.
func findSleeps(t *testing.T, path string) (found []token.Position) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range file.Imports {
		if spec.Path.Value == `"testing/synctest"` {
			return nil
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ForStmt, *ast.RangeStmt:
			return false
		case *ast.SelectorExpr:
			if of, ok := n.X.(*ast.Ident); ok && of.Name == "time" && n.Sel.Name == "Sleep" {
				found = append(found, files.Position(n.Pos()))
			}
		}
		return true
	})
	return found
}

package logs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestMessages checks that messages.go has exactly the warnings and errors of the program.
func TestMessages(t *testing.T) {
	t.Parallel()
	used := map[string]string{leftOut: "limit.go"}
	each(t, func(path string, call *ast.CallExpr, method string) {
		if message, ok := literal(call.Args[0]); ok && method != "With" {
			used[message] = path
		}
	})
	known := map[string]bool{}
	for _, area := range areas() {
		for _, m := range area.messages {
			if known[m.text] {
				t.Errorf("messages.go has %q twice, want once", m.text)
			}
			known[m.text] = true
			if used[m.text] == "" {
				t.Errorf("messages.go has %q, which no call logs", m.text)
			}
		}
	}
	for text, where := range used {
		if !known[text] {
			t.Errorf("%s logs %q, which has no entry in internal/telemetry/logs/messages.go", where, text)
		}
	}
}

// details returns the attributes that describe the state of a line's subject, and can differ from
// line to line.
func details() []string {
	return []string{
		"asked", "before", "beyond_rate", "bytes", "changes", "connections", "count", "endpoints", "entries",
		"error", "evidence", "format", "half_open_others", "half_open_tcp", "hint", "left", "level", "limit", "lost",
		"more", "most", "next_try", "no_room", "nodes", "now", "objects", "output", "packets", "panic",
		"ports_short", "queue", "role", "services", "stack", "state", "table", "took", "undone_by", "waited", "why",
	}
}

// TestSubjectKeys checks that each attribute of a warning either names its subject, or is a detail.
func TestSubjectKeys(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	each(t, func(_ string, call *ast.CallExpr, method string) {
		first := 1 // the first attribute: the message precedes it
		if method == "With" {
			first = 0
		}
		for i := first; i < len(call.Args); i += 2 {
			if key, ok := literal(call.Args[i]); ok {
				used[key] = true
			}
		}
	})
	for key := range used {
		if slices.Contains(subjectKeys(), key) == slices.Contains(details(), key) {
			t.Errorf("attribute %q is in both or none of subjectKeys and details, want it in one", key)
		}
	}
	for _, key := range slices.Concat(subjectKeys(), details()) {
		if !used[key] {
			t.Errorf("subjectKeys or details has %q, which no warning has as attribute", key)
		}
	}
	for _, message := range changes() {
		if messageOf(message).hint == "" && message != "the level of the log was changed" {
			t.Errorf("messages.go has no hint for %q", message)
		}
	}
}

// each calls f with the calls that log a warning or create a logger.
func each(t *testing.T, f func(path string, call *ast.CallExpr, method string)) {
	t.Helper()
	for _, dir := range []string{"../../../internal", "../../../cmd"} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || len(call.Args) == 0 {
					return true
				}
				method, ok := call.Fun.(*ast.SelectorExpr)
				if ok && slices.Contains([]string{"Warn", "Error", "With"}, method.Sel.Name) && isLogger(method.X) {
					f(path, call, method.Sel.Name)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// isLogger reports whether an expression is a logger, by its name: all loggers in the program are
// named log or Log.
func isLogger(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name == "log"
	case *ast.SelectorExpr:
		return x.Sel.Name == "log" || x.Sel.Name == "Log"
	case *ast.CallExpr: // a call of With
		method, ok := x.Fun.(*ast.SelectorExpr)
		return ok && isLogger(method.X)
	}
	return false
}

func literal(x ast.Expr) (string, bool) {
	text, ok := x.(*ast.BasicLit)
	if !ok || text.Kind != token.STRING {
		return "", false
	}
	value, err := strconv.Unquote(text.Value)
	return value, err == nil
}

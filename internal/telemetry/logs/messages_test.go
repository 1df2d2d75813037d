package logs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"loxilb/tools/markdown"
)

const page = "../../../docs/log-messages.md"

// TestMessages checks that docs/log-messages.md explains exactly the warnings and errors of the
// program. UPDATE=1 rewrites it.
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
				t.Errorf("%q is explained twice", m.text)
			}
			known[m.text] = true
			if used[m.text] == "" {
				t.Errorf("%q is explained, and nobody says it", m.text)
			}
		}
	}
	for text, where := range used {
		if !known[text] {
			t.Errorf("%s: %q has no entry in internal/telemetry/logs/messages.go", where, text)
		}
	}
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(page, []byte(document()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(page); err != nil || string(have) != document() {
		t.Errorf("%s is not what the messages say (%v): make update writes it", page, err)
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
			t.Errorf("%q is to be in one of subjectKeys and details", key)
		}
	}
	for _, key := range slices.Concat(subjectKeys(), details()) {
		if !used[key] {
			t.Errorf("%q is no attribute of a warning", key)
		}
	}
	for _, message := range changes() {
		if hintOf(message) == "" && message != "the level of the log was changed" {
			t.Errorf("no line says %q", message)
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

// document returns the page of all messages, without their hints: the lines of the log have them.
func document() string {
	var b strings.Builder
	b.WriteString(`<!-- Written from internal/telemetry/logs/messages.go by make update. Do not edit. -->

# Log messages

Every warning and error of loxilb. Messages are constant; attributes hold the rest. The attribute
` + "`hint`" + ` of the line says what to do. Under systemd, attributes are fields of the journal
(` + "`journalctl -u loxilb LOXILB_REASON=no-endpoint`" + `), and the message is ` + "`LOXILB_MESSAGE`" + `.

The first warning for a service, endpoint, VIP or interface is logged at once. Repetitions are
summed up after a minute, ten more, and then once an hour: ` + "`repeated`" + ` counts omitted lines, ` + "`first`" + `
and ` + "`last`" + ` are their times, ` + "`period`" + ` is the time since the previous line. An old ` + "`last`" + ` means that
the trouble has ended. Changes of state (*endpoint is down*) have ten lines first. A message has at
most ` + fmt.Sprint(most) + ` lines a minute; the next line counts the omitted ones.
`)
	for _, a := range areas() {
		fmt.Fprintf(&b, "\n## %s\n\n", a.name)
		var plain []string
		for _, m := range a.messages {
			if m.means == "" {
				plain = append(plain, "*"+m.text+"*")
			} else {
				b.WriteString(markdown.Item(fmt.Sprintf("*%s*: %s", m.text, m.means)))
			}
		}
		if plain != nil {
			b.WriteString(markdown.Item(strings.Join(plain, "; ")))
		}
	}
	return b.String()
}

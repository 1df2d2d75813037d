package logs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const page = "../../docs/log-messages.md"

// TestMessages: each message that warns, or tells of an error, is explained in docs/log-messages.md, with what to do, and no other. UPDATE=1 writes that
// anew.
func TestMessages(t *testing.T) {
	t.Parallel()
	used := map[string]string{leftOut: "limit.go"}
	for _, dir := range []string{"../../internal", "../../cmd"} {
		if err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			return messagesOf(path, used)
		}); err != nil {
			t.Fatal(err)
		}
	}
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
			t.Errorf("%s: %q has no entry in internal/logs/messages.go", where, text)
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

// messagesOf notes the messages of a file: literals that a method Warn or Error is given first.
func messagesOf(path string, used map[string]string) error {
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
		if !ok || method.Sel.Name != "Warn" && method.Sel.Name != "Error" {
			return true
		}
		if text, ok := call.Args[0].(*ast.BasicLit); ok && text.Kind == token.STRING {
			message, _ := strconv.Unquote(text.Value)
			used[message] = path
		}
		return true
	})
	return nil
}

// document is the page of all messages.
func document() string {
	var b strings.Builder
	b.WriteString(`<!-- Written from internal/logs/messages.go by make update. Do not edit. -->

# Messages of the log

All that loxilb says at the levels warning and error. Messages never change from one line to the next: what differs is in attributes. What is to be done is the
line's attribute ` + "`hint`" + `, and here. Under systemd each attribute is a field of the journal (` + "`journalctl -u loxilb LOXILB_REASON=no-endpoint`" + `), and
the message is ` + "`LOXILB_MESSAGE`" + `. A message has at most ` + fmt.Sprint(most) + ` lines a minute; how many were left out is said when the minute is over.
`)
	for _, a := range areas() {
		fmt.Fprintf(&b, "\n## %s\n\n| message | what it means | what to do |\n|---|---|---|\n", a.name)
		for _, m := range a.messages {
			hint := m.hint
			if hint == "" {
				hint = "-"
			}
			fmt.Fprintf(&b, "| %s | %s | %s |\n", strings.ReplaceAll(m.text, "|", `\|`), m.means, hint)
		}
	}
	return b.String()
}

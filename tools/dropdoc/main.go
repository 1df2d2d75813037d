// Command dropdoc writes docs/man/loxilb-drops.7 from the comments of the enums in bpf/abi.h, and
// internal/lb/report from these and from remedies.txt, so documents, metric labels and
// answers of the API agree.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"loxilb/tools/markdown"
)

//go:generate go run . -root ../..

func main() {
	root := flag.String("root", ".", "directory of the project")
	flag.Parse()
	if err := run(*root); err != nil {
		fmt.Fprintln(os.Stderr, "dropdoc:", err)
		os.Exit(1)
	}
}

func run(root string) error {
	header, err := os.ReadFile(filepath.Join(root, "bpf/abi.h"))
	if err != nil {
		return err
	}
	guide, err := os.ReadFile(filepath.Join(root, "tools/dropdoc/remedies.txt"))
	if err != nil {
		return err
	}
	text, err := page(string(header), string(guide))
	if err != nil {
		return err
	}
	code, err := source(string(header), string(guide))
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(root, "docs/man/loxilb-drops.7"), []byte(markdown.Manual("loxilb-drops", text)), 0o644),
		os.WriteFile(filepath.Join(root, "internal/lb/report/dropreasons.gen.go"), code, 0o644),
	)
}

const (
	intro = `<!-- Generated from bpf/abi.h by tools/dropdoc (make generate). Do not edit. -->

# Why packets are dropped

Every dropped packet has one of these reasons: the label of the metric
` + "`loxilb_drops_total{reason=...}`" + `, and the word in the log. Only packets of a service, of a
connection or of a firewall rule are dropped; all others go to the kernel. ` + "`loxicmd get drops`" + `
shows the reasons of this machine's packets.

## Reasons

`
	passes = `
## Packets that go to the kernel although they look like ours

These are counted, not dropped: the kernel has them, and nothing of them was changed.

`
)

// page makes the whole page.
func page(header, guide string) (string, error) {
	drops, err := values(header, "drop_reason", "DROP_", "NONE")
	if err != nil {
		return "", err
	}
	passed, err := values(header, "pass_reason", "PASS_", "PLAIN")
	if err != nil {
		return "", err
	}
	advice := remedies(guide)
	return intro + items(drops, advice) + passes + items(passed, nil), nil
}

// value is one value of an enum: its name as users see it, and its comment.
type value struct{ name, meaning string }

var errNoComment = errors.New("has no comment")

// values reads an enum, without its first value, which stands for none, and without the last, its
// number of values.
func values(header, enum, prefix, none string) ([]value, error) {
	_, body, found := strings.Cut(header, "enum "+enum+" {")
	if !found {
		return nil, fmt.Errorf("enum %s not found", enum)
	}
	body, _, found = strings.Cut(body, "};")
	if !found {
		return nil, fmt.Errorf("enum %s has no end", enum)
	}
	comment := regexp.MustCompile(`(?s)^\s*/\*(.*?)\*/`)
	parts := regexp.MustCompile(`\b`+prefix+`(\w+)\s*,?`).FindAllStringSubmatchIndex(body, -1)
	out := make([]value, 0, len(parts))
	for _, at := range parts {
		name := body[at[2]:at[3]]
		if name == none || name == "REASONS" {
			continue
		}
		m := comment.FindStringSubmatch(body[at[1]:])
		if m == nil {
			return nil, fmt.Errorf("%s%s %w", prefix, name, errNoComment)
		}
		out = append(out, value{strings.ReplaceAll(strings.ToLower(name), "_", "-"), sentence(m[1])})
	}
	return out, nil
}

// sentence joins the lines of a C comment.
func sentence(comment string) string {
	words := strings.Fields(comment)
	kept := words[:0]
	for _, w := range words {
		if w != "*" { // begins a line
			kept = append(kept, w)
		}
	}
	return strings.Join(kept, " ")
}

// items has the meaning of each reason, its usual cause unless the meaning includes it, and the
// remedy if there is one.
func items(reasons []value, advice map[string]remedy) string {
	var b strings.Builder
	for _, r := range reasons {
		a := advice[r.name]
		text := fmt.Sprintf("`%s`: %s", r.name, r.meaning)
		if a.cause != "" && !a.known {
			text += ". Usually: " + a.cause
		}
		if todo := strings.TrimPrefix(a.remedy, "nothing; "); todo != "" && todo != "nothing" {
			text += ". *Remedy*: " + todo
		}
		b.WriteString(markdown.Item(text))
	}
	return b.String()
}

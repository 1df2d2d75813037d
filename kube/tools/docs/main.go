// Docs writes the tables of docs/kubernetes-controller.md: annotations and flags.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"loxilb/kube/internal/annotation"
	"loxilb/kube/internal/options"
)

//go:generate go run . -out ../../../docs/kubernetes-controller.md

func main() {
	out := flag.String("out", "", "the document")
	flag.Parse()
	data, err := os.ReadFile(*out)
	if err == nil {
		var text string
		if text, err = replace(string(data)); err == nil {
			err = os.WriteFile(*out, []byte(text), 0o644)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// replace puts the tables between their marks.
func replace(text string) (string, error) {
	for name, table := range map[string]string{"annotations": annotations(), "flags": flags()} {
		begin, end := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->"
		before, rest, ok := strings.Cut(text, begin)
		_, after, ok2 := strings.Cut(rest, end)
		if !ok || !ok2 {
			return "", fmt.Errorf("the document has no marks of %s", name)
		}
		text = before + begin + table + end + after
	}
	return text, nil
}

func annotations() string {
	var b strings.Builder
	b.WriteString("| annotation | values | |\n|---|---|---|\n")
	for _, a := range annotation.All() {
		names := "`" + a.Name + "`"
		if len(a.Also) > 0 {
			names += "; also `" + strings.Join(a.Also, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", names, a.Values, a.Effect)
	}
	return b.String()
}

func flags() string {
	var b strings.Builder
	b.WriteString("| flag | by default | |\n|---|---|---|\n")
	for _, f := range options.Flags() {
		name, value := "`--"+f.Name+"`", ""
		if f.Own {
			name += " (new)"
		}
		if f.Default != "" {
			value = "`" + f.Default + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, value, strings.ReplaceAll(f.Usage, "|", `\|`))
	}
	return b.String()
}

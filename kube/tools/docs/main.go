// Docs writes the tables of annotations and flags in docs/kubernetes-controller.md.
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

// replace writes the generated tables between their marks.
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
	var missing []string
	b.WriteString("| annotation | values | |\n|---|---|---|\n")
	for _, a := range annotation.All() {
		if a.Unavailable != "" {
			missing = append(missing, "`"+strings.TrimPrefix(a.Name, annotation.Prefix)+"`")
			continue
		}
		names := "`" + a.Name + "`"
		if len(a.Also) > 0 {
			names += "; also `" + strings.Join(a.Also, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", names, a.Values, a.Effect)
	}
	b.WriteString("\n" + wrap("Refused, as they are not available: "+strings.Join(missing, ", ")+"."))
	return b.String()
}

func flags() string {
	var existing, own, missing, ignored []string
	for _, f := range options.Flags() {
		list := &existing
		switch {
		case f.Own:
			list = &own
		case strings.HasPrefix(f.Usage, "not available"):
			list = &missing
		case strings.HasPrefix(f.Usage, "has no effect"):
			list = &ignored
		}
		*list = append(*list, "`--"+f.Name+"`")
	}
	return wrap("- of the existing controller: "+strings.Join(existing, ", ")) +
		wrap("- of the existing controller, accepted only with their defaults: "+strings.Join(missing, ", ")) +
		wrap("- of the existing controller, accepted with a warning: "+strings.Join(ignored, ", ")) +
		wrap("- new: "+strings.Join(own, ", "))
}

// wrap breaks a paragraph, or an item of a list, into lines of at most 100 columns.
func wrap(text string) string {
	const columns = 100
	var b strings.Builder
	used := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case used+1+len(word) > columns:
			indent := "\n"
			if strings.HasPrefix(text, "- ") {
				indent = "\n  "
			}
			b.WriteString(indent)
			used = len(indent) - 1
		default:
			b.WriteByte(' ')
			used++
		}
		b.WriteString(word)
		used += len(word)
	}
	return b.String() + "\n"
}

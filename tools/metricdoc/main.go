// Command metricdoc writes docs/metrics.md: an introduction for users, and the names of all
// metrics.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"loxilb/internal/telemetry/metrics"
	"loxilb/tools/markdown"
)

//go:generate go run . -intro intro.txt -out ../../docs/metrics.md

func main() {
	intro := flag.String("intro", "tools/metricdoc/intro.txt", "page before the tables")
	out := flag.String("out", "docs/metrics.md", "page to write")
	flag.Parse()
	if err := run(*intro, *out); err != nil {
		fmt.Fprintln(os.Stderr, "metricdoc:", err)
		os.Exit(1)
	}
}

func run(intro, out string) error {
	text, err := os.ReadFile(intro)
	if err != nil {
		return err
	}
	return os.WriteFile(out, append(text, reference(metrics.Catalog())...), 0o644)
}

// reference lists the names of each group of metrics; GET /metrics explains them.
func reference(list []metrics.Metric) string {
	var b strings.Builder
	for _, group := range [...]struct {
		title string
		when  []metrics.When
	}{
		{"The machine", []metrics.When{metrics.Always}},
		{"Services", []metrics.When{metrics.OfService, metrics.Native}},
		{"Endpoints, with `--metrics-detail=endpoint`", []metrics.When{metrics.OfEndpoint}},
		{"Former names, for one more release", []metrics.When{metrics.Former}},
	} {
		var names []string
		for _, when := range group.when {
			names = append(names, namesOf(list, when)...)
		}
		fmt.Fprintf(&b, "\n### %s\n\n%s", group.title, markdown.Wrap(strings.Join(names, ", "), ""))
	}
	b.WriteString("\n### Names of the existing loxilb, with `--compat`\n\n" +
		"[compatibility.md](compatibility.md#metrics) says how they differ.\n")
	return b.String()
}

// namesOf returns the name, labels and, unless the name tells it, type of each metric of a group.
func namesOf(list []metrics.Metric, when metrics.When) []string {
	var names []string
	for i := range list {
		if m := &list[i]; m.When == when {
			names = append(names, "`"+m.Name+labels(m)+"`"+typeOf(m))
		}
	}
	return names
}

func labels(m *metrics.Metric) string {
	if len(m.Labels) == 0 {
		return ""
	}
	return "{" + strings.Join(m.Labels, ",") + "}"
}

// typeOf returns the type of a metric in parentheses, unless its name tells it.
func typeOf(m *metrics.Metric) string {
	switch {
	case m.When == metrics.Native:
		return " (native histogram)"
	case m.Type == metrics.Histogram:
		return " (histogram)"
	case m.Type == metrics.Counter && !strings.HasSuffix(m.Name, "_total"):
		return " (counter)"
	}
	return ""
}

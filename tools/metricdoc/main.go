// Command metricdoc writes docs/metrics.md: an introduction for users, and a line for each metric.
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

// reference has a list for each group of metrics.
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
		fmt.Fprintf(&b, "\n### %s\n\n", group.title)
		for _, when := range group.when {
			items(&b, list, when)
		}
	}
	b.WriteString("\n### Names of the existing loxilb, with `--compat`\n\n" +
		"`GET /metrics` lists and explains them; [compatibility.md](compatibility.md#metrics) says how they\ndiffer.\n")
	return b.String()
}

// items writes a line for each metric of a group; old and canonical names of one metric share it.
func items(b *strings.Builder, list []metrics.Metric, when metrics.When) {
	var texts []string
	names := map[string][]string{}
	for i := range list {
		m := &list[i]
		if m.When != when {
			continue
		}
		text := typeOf(m) + inShort(m.Help)
		if names[text] == nil {
			texts = append(texts, text)
		}
		names[text] = append(names[text], "`"+m.Name+labels(m)+"`")
	}
	for _, text := range texts {
		b.WriteString(markdown.Item(strings.Join(names[text], ", ") + text))
	}
}

func labels(m *metrics.Metric) string {
	if len(m.Labels) == 0 {
		return ""
	}
	return "{" + strings.Join(m.Labels, ",") + "}"
}

// typeOf returns what precedes the meaning: the type, unless the name tells it.
func typeOf(m *metrics.Metric) string {
	switch {
	case m.When == metrics.Native:
		return " (native histogram): "
	case m.Type == metrics.Histogram:
		return " (histogram): "
	case m.Type == metrics.Counter && !strings.HasSuffix(m.Name, "_total"):
		return " (counter): "
	}
	return ": "
}

// inShort removes from a help text what intro.txt says about all metrics.
func inShort(help string) string {
	return strings.NewReplacer(
		", in (from clients) and out (to clients)", "",
		" Without --metrics-detail=endpoint, no series while it is 0.", " *Sparse.*",
		" of all services, those that are deleted included", " of all services",
		" To one tick of the kernel's clock; the sum is an estimate from the buckets.", "",
		" since the daemon started", " since the start",
		" since the daemon began", " since the start",
	).Replace(help)
}

// Command metricdoc writes docs/metrics.md: an introduction for users, and a row for each metric.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"loxilb/internal/telemetry/metrics"
)

//go:generate go run . -intro intro.md -out ../../docs/metrics.md

func main() {
	intro := flag.String("intro", "tools/metricdoc/intro.md", "page before the tables")
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

// reference has a table for each group of metrics.
func reference(list []metrics.Metric) string {
	var b strings.Builder
	for _, group := range [...]struct {
		title string
		when  []metrics.When
	}{
		{"The machine", []metrics.When{metrics.Always}},
		{"Services", []metrics.When{metrics.OfService, metrics.Native}},
		{"Endpoints, with `--metrics-detail=endpoint`", []metrics.When{metrics.OfEndpoint}},
		{"Names of before, for one more release", []metrics.When{metrics.Former}},
		{"Names of the existing loxilb, with `--compat`", []metrics.When{metrics.Contract}},
	} {
		fmt.Fprintf(&b, "\n### %s\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n", group.title)
		for _, when := range group.when {
			for _, m := range list {
				if m.When == when {
					fmt.Fprintln(&b, line(m))
				}
			}
		}
	}
	return b.String()
}

func line(m metrics.Metric) string {
	kind := string(m.Type)
	if m.When == metrics.Native {
		kind = "native histogram"
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s |", m.Name, kind, strings.Join(m.Labels, ", "), strings.ReplaceAll(m.Help, "|", `\|`))
}

package main

import (
	"fmt"
	"strings"

	"loxilb/internal/telemetry/metrics"
	"loxilb/tools/markdown"
)

const metricsHead = `<!-- Generated from internal/telemetry/metrics by tools/refdoc (make generate). Do not edit. -->

# Metrics of GET /netlox/v1/metrics

Names that end in _total are counters, all others gauges, unless marked. dir is in (from clients) or
out (to clients). Metrics that are 0 have no series, unless ` + "`--metrics-detail=endpoint`" + `, where
their comment says so. Metrics of all services include deleted ones.
`

// metricsPage explains the metrics of each group.
func metricsPage(list []metrics.Metric) string {
	var b strings.Builder
	b.WriteString(metricsHead)
	for _, group := range [...]struct {
		title string
		when  []metrics.When
	}{
		{"The machine", []metrics.When{metrics.Always}},
		{"Services", []metrics.When{metrics.OfService, metrics.Native}},
		{"Endpoints, with --metrics-detail=endpoint", []metrics.When{metrics.OfEndpoint}},
		{"Former names, for one more release", []metrics.When{metrics.Former}},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n", group.title)
		for _, when := range group.when {
			for i := range list {
				if m := &list[i]; m.When == when {
					b.WriteString(markdown.Item("`" + m.Name + labels(m) + "`: " + strings.TrimPrefix(typeOf(m)+" ", " ") + m.Help))
				}
			}
		}
	}
	b.WriteString("\n## Names of the existing loxilb, with --compat\n\ndocs/compatibility.md says how they differ.\n")
	return b.String()
}

func labels(m *metrics.Metric) string {
	if len(m.Labels) == 0 {
		return ""
	}
	return "{" + strings.Join(m.Labels, ",") + "}"
}

// typeOf returns the type of a metric as a sentence, unless its name shows the type.
func typeOf(m *metrics.Metric) string {
	switch {
	case m.When == metrics.Native:
		return " Native histogram."
	case m.Type == metrics.Histogram:
		return " Histogram."
	case m.Type == metrics.Counter && !strings.HasSuffix(m.Name, "_total"):
		return " Counter."
	}
	return ""
}

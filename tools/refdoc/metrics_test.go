package main

import (
	"strings"
	"testing"

	"loxilb/internal/telemetry/metrics"
)

// TestMetrics checks that each metric has exactly one entry, except for names of the existing
// loxilb, which GET /metrics explains.
func TestMetrics(t *testing.T) {
	t.Parallel()
	list := metrics.Catalog()
	page := metricsPage(list)
	for _, m := range list {
		want := 1
		if m.When == metrics.Contract {
			want = 0
		}
		if n := strings.Count(page, "`"+m.Name+"`") + strings.Count(page, "`"+m.Name+"{"); n != want {
			t.Errorf("the page has %s %d times, want %d", m.Name, n, want)
		}
	}
	if want := "- `loxilb_drops_total{reason}`: "; !strings.Contains(page, want) {
		t.Errorf("the page is:\n%s\nwant in it: %s", page, want)
	}
}

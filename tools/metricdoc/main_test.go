package main

import (
	"strings"
	"testing"

	"loxilb/internal/telemetry/metrics"
)

// TestReference checks that each metric has exactly one entry.
func TestReference(t *testing.T) {
	t.Parallel()
	list := metrics.Catalog()
	page := reference(list)
	for _, m := range list {
		if n := strings.Count(page, "`"+m.Name+"`") + strings.Count(page, "`"+m.Name+"{"); n != 1 {
			t.Errorf("%s is there %d times", m.Name, n)
		}
	}
	if want := "- `loxilb_drops_total{reason}`: Packets dropped, by reason.\n"; !strings.Contains(page, want) {
		t.Errorf("%s\nhas not %s", page, want)
	}
}

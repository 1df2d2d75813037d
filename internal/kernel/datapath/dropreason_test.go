package datapath_test

import (
	"testing"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb/report"
)

// TestEveryReasonHasARemedy checks that every reason of the data path has a meaning and a remedy.
func TestEveryReasonHasARemedy(t *testing.T) {
	t.Parallel()
	all := report.DropReasons()
	if n := len(all); n != int(bpf.TcDropReasonDROP_REASONS)-1 {
		t.Errorf("%d reasons of %d", n, bpf.TcDropReasonDROP_REASONS-1)
	}
	for _, r := range all {
		if found, known := report.DropReasonOf(r.Name); !known || found != r || r.Meaning == "" || r.Cause == "" || r.Remedy == "" {
			t.Errorf("%+v, found as %+v", r, found)
		}
	}
	if r, known := report.DropReasonOf("no-such"); known || r.Name != "no-such" {
		t.Errorf("a reason that is not known: %+v", r)
	}
}

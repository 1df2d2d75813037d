package explain

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"

	"loxilb/internal/control/desired"
	"loxilb/internal/kernel/datapath/dryrun"
	"loxilb/internal/kernel/netdev"
)

// quiet is a network without anything to report.
type quiet struct{}

func (quiet) Links() []netdev.Link { return nil }
func (quiet) Lead(context.Context, netip.Addr) (netdev.Leading, error) {
	return netdev.Leading{}, nil
}
func (quiet) ReversePathFilter(string) int { return 0 }

// TestRuleGone checks that a rule that is still in the data path, but no longer configured, decides
// about the packet, and is named as such.
func TestRuleGone(t *testing.T) {
	t.Parallel()
	state, err := desired.Open(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	i := &inquiry{Explainer: New(Explainer{Desired: state, Network: quiet{}}), ctx: t.Context(), now: state.Snapshot()}
	r := &dryrun.Result{HasRule: true, Rule: 7}
	i.addRule(r)
	a := i.passed(r, nil)
	if a.Verdict != Kernel || a.Summary == "" || len(a.Steps) != 1 || a.Steps[0].Stage != "rule" {
		t.Errorf(`got %+v, want a.Verdict == Kernel, a.Summary not empty, len(a.Steps) == 1, a.Steps[0].Stage == "rule"`,
			a)
	}
}

package explain

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"loxilb/internal/control/desired"
	"loxilb/internal/control/store"
	"loxilb/internal/kernel/datapath/dryrun"
	"loxilb/internal/kernel/netdev"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// quiet is a network without anything to report.
type quiet struct{}

func (quiet) Links() []netdev.Link { return nil }
func (quiet) RouteTo(context.Context, netip.Addr) (netdev.HostRoute, error) {
	return netdev.HostRoute{}, nil
}
func (quiet) ReversePathFilter(string) int { return 0 }

// unanswered is a data path in which no endpoint has answered.
type unanswered struct{ DataPath }

func (unanswered) ServiceStats(lb.Key) (report.ServiceStats, bool) {
	return report.ServiceStats{Endpoints: []report.EndpointStats{{}}}, true
}

// TestNoPath checks that the remedy names the address without a usable route, and that unanswered
// SYNs that did not leave this machine are not attributed to the endpoint.
func TestNoPath(t *testing.T) {
	t.Parallel()
	to := netip.MustParseAddrPort("31.31.31.1:5001")
	s := &lb.Service{Key: lb.Key{Protocol: lb.TCP}, Endpoints: []lb.Endpoint{{Addr: to.Addr(), Port: to.Port()}}}
	for _, reason := range []string{"no-route", "route-unreachable"} {
		i := &inquiry{Explainer: New(Explainer{DataPath: unanswered{}, Health: silentHealth{}})}
		r := &dryrun.Result{Outcome: dryrun.Drops, Reason: reason, Entry: &dryrun.Entry{Target: to, Endpoint: to}}
		i.addAnswers(r, s)
		a := i.conclude(r, s)
		if !strings.Contains(a.Hint, "ip route get 31.31.31.1") || len(a.Steps) != 1 || a.Steps[0].Stage != "program" {
			t.Errorf(`%s: got %+v, want "ip route get 31.31.31.1" in a.Hint, len(a.Steps) == 1, a.Steps[0].Stage == "program"`, reason, a)
		}
	}
}

// TestRuleGone checks that a deleted rule that is still in the data path decides about the packet,
// and is described as deleted.
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
		t.Errorf(`got %+v, want a.Verdict == Kernel, a.Summary not empty, 1 element in a.Steps, a.Steps[0].Stage == "rule"`,
			a)
	}
}

// TestRuleBeforeService checks that the answer does not report a missing service if a rule decides
// before the service is looked up.
func TestRuleBeforeService(t *testing.T) {
	t.Parallel()
	state, err := desired.Open(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	s, err := lb.ParseService("20.20.20.1:80/tcp endpoints=31.31.31.1:8080")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := state.Commit("test", func(tx *store.Tx) error { return state.Services.Put(tx, s) }); err != nil {
		t.Fatal(err)
	}
	q := Question{From: netip.MustParseAddrPort("100.100.100.1:4000"), To: netip.MustParseAddrPort("20.20.20.1:80"), Protocol: lb.TCP}
	for hasRule, steps := range map[bool]int{true: 0, false: 1} {
		now := state.Snapshot()
		i := &inquiry{Explainer: New(Explainer{Desired: state}), Question: q, now: now, services: state.Services.At(now)}
		i.addService(&dryrun.Result{HasRule: hasRule}, nil)
		if list := i.answer.Steps; len(list) != steps || steps > 0 && !strings.Contains(list[0].Text, "not applied") {
			t.Errorf("with a rule %t: got %+v, want %d steps", hasRule, list, steps)
		}
	}
}

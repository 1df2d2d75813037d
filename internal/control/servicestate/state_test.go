package servicestate

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"loxilb/internal/lb/report"
)

// combinations calls f with every combination of the inputs of an endpoint's state.
func combinations(f func(Endpoint)) {
	bools := []bool{false, true}
	for _, probe := range []report.HealthState{report.HealthUnknown, report.HealthUp, report.HealthDown} {
		for bits := range 1 << 9 {
			on := func(n int) bool { return bools[bits>>n&1] }
			e := Endpoint{Verdict: report.Verdict{Probe: probe, Agent: on(0), Ejected: on(1), Failing: on(2), NoRoute: on(8)}, Weight: 1, Drained: on(3), Backup: on(5), Available: on(6)}
			if on(4) {
				e.Weight = 0
			}
			if on(7) {
				e.Open = 3
			}
			f(e)
		}
	}
}

// TestEndpointStates checks the condition of each state, for all combinations of inputs.
func TestEndpointStates(t *testing.T) {
	t.Parallel()
	count := map[State]int{}
	combinations(func(e Endpoint) {
		s := e.State()
		count[s]++
		ordered := e.Drained || e.Weight == 0
		holds := map[State]bool{
			Draining: ordered && e.Open > 0,
			Drained:  ordered && e.Open == 0,
			Down:     !ordered && e.Down() && (e.Failing || e.NoRoute || !e.Available),
			Panic:    !ordered && e.Down() && !e.Failing && !e.NoRoute && e.Available,
			Standby:  !ordered && !e.Down() && e.Backup && !e.Available,
			Up:       !ordered && !e.Down() && (!e.Backup || e.Available) && e.Probe == report.HealthUp,
			Unprobed: !ordered && !e.Down() && (!e.Backup || e.Available) && e.Probe == report.HealthUnknown,
		}
		for state, is := range holds {
			if is != (state == s) {
				t.Errorf("%+v is %s, but the condition for %s is %t", e, s, state, is)
			}
		}
	})
	for _, s := range EndpointStates() {
		if count[s] == 0 {
			t.Errorf("no combination is %s", s)
		}
	}
}

// one returns an endpoint in a state.
func one(s State) Endpoint {
	e := Endpoint{Weight: 1, Available: true, Verdict: report.Verdict{Probe: report.HealthUp}}
	switch s {
	case Unprobed:
		e.Probe = report.HealthUnknown
	case Standby:
		e.Backup, e.Available = true, false
	case Draining:
		e.Drained, e.Available, e.Open = true, false, 1
	case Drained:
		e.Weight, e.Available = 0, false
	case Panic:
		e.Ejected = true
	case Down:
		e.Probe, e.Available = report.HealthDown, false
	}
	return e
}

// TestReceiving checks that a service that is down can still have endpoints that get new
// connections.
func TestReceiving(t *testing.T) {
	t.Parallel()
	kept := Endpoint{Weight: 1, Available: true, Verdict: report.Verdict{Failing: true}}
	s := Of([]Endpoint{kept, one(Down)}, SyncApplied)
	if s.State != Down || s.Serving != 0 || s.Receiving != 1 {
		t.Errorf("an endpoint is kept in rotation: %+v", s)
	}
	if s = Of([]Endpoint{one(Down), one(Drained), one(Standby)}, SyncApplied); s.Receiving != 0 {
		t.Errorf("no endpoint is up, but some receive connections: %+v", s)
	}
}

// TestServiceStates compares the states of all pairs of endpoints with a golden file.
func TestServiceStates(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	line := func(what string, s Service) {
		fmt.Fprintf(&b, "%-22s %-9s serving %d, down %d, panic %d, drained %d\n", what, s.State, s.Serving, s.Down, s.Panicking, s.Drained)
		if up := s.State == Up || s.State == Unprobed || s.State == Degraded; up != s.Up() && s.State != Pending && s.State != Failed {
			t.Errorf("%s: %s, and up is %t", what, s.State, s.Up())
		}
	}
	line("no endpoint", Of(nil, SyncApplied))
	line("not applied", Of([]Endpoint{one(Up)}, SyncPending))
	line("refused", Of([]Endpoint{one(Up)}, SyncFailed))
	line("failing, taken", Of([]Endpoint{{Weight: 1, Available: true, Verdict: report.Verdict{Failing: true}}}, SyncApplied))
	line("no route, taken", Of([]Endpoint{{Weight: 1, Available: true, Verdict: report.Verdict{NoRoute: true}}}, SyncApplied))
	for i, x := range EndpointStates() {
		if got := one(x).State(); got != x {
			t.Errorf("%s is %s", x, got)
		}
		for _, y := range EndpointStates()[i:] {
			line(string(x)+" + "+string(y), Of([]Endpoint{one(x), one(y)}, SyncApplied))
		}
	}
	const golden = "testdata/services.txt"
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

// TestSummary checks that every endpoint is counted, with the worst state first.
func TestSummary(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]Service{
		"no endpoints":             {},
		"1 down":                   {Endpoints: []State{Down}},
		"1 down, 2 drained, 1 up":  {Endpoints: []State{Drained, Up, Down, Drained}},
		"1 panic, 1 standby, 3 up": {Endpoints: []State{Up, Up, Standby, Panic, Up}},
	} {
		if got := s.Summary(); got != want {
			t.Errorf("the summary of %+v is %q, want %q", s, got, want)
		}
	}
}

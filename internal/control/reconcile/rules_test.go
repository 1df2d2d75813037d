package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"loxilb/internal/control/desired"
	"loxilb/internal/control/status"
	"loxilb/internal/control/store"
	"loxilb/internal/event"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/netdev"
	"loxilb/internal/lb/policy"
	"loxilb/internal/lb/report"
)

// fakeRuleTable is a RuleTable whose EndConnections runs until it is cancelled.
type fakeRuleTable struct {
	began, cancelled chan struct{}
	sets             []int // number of rules, of each call of SetRules
	failing          error // error of EndConnections; nil: none
}

func (f *fakeRuleTable) SetRules(t bpf.RuleTable) error {
	f.sets = append(f.sets, len(t.Rules))
	return nil
}

func (f *fakeRuleTable) RuleCount() int { return 0 }

func (f *fakeRuleTable) EndConnections(ctx context.Context, _, _ int, _ func(*report.Connection) bool) (report.Ended, error) {
	f.began <- struct{}{}
	if f.failing != nil {
		return report.Ended{}, f.failing
	}
	<-ctx.Done()
	f.cancelled <- struct{}{}
	return report.Ended{}, ctx.Err()
}

// ruleRig has the loop of rules. The test calls Apply itself.
type ruleRig struct {
	*Rules
	t      *testing.T
	kernel *fakeKernel
	table  *fakeRuleTable
	links  []netdev.Link
}

func newRuleRig(t *testing.T) *ruleRig {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	s, err := desired.Open("", log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &ruleRig{t: t, kernel: newFakeKernel(), table: &fakeRuleTable{began: make(chan struct{}, 9), cancelled: make(chan struct{}, 9)}}
	r.Rules = NewRules(s, r.table, func() []netdev.Link { return r.links }, LeasedOwner{Owner: fakeOwner{r.kernel}}, nil,
		Observers{Statuses: status.NewTable(), Events: event.NewHub(), Log: log})
	return r
}

// apply stores and applies these rules, and returns their error.
func (r *ruleRig) apply(ctx context.Context, rules ...string) error {
	r.t.Helper()
	_, _, err := r.desired.Commit("test", func(tx *store.Tx) error {
		for was := range r.desired.Rules.All(tx) {
			if err := r.desired.Rules.Delete(tx, was.Key()); err != nil {
				return err
			}
		}
		for _, text := range rules {
			rule, err := policy.ParseRule(text)
			if err != nil {
				return err
			}
			if err := r.desired.Rules.Put(tx, rule); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return r.Apply(ctx, []string{"any"})[0].Err
}

func waitFor(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(10 * time.Second):
		t.Fatal("not within 10 s: " + what)
	}
}

// TestRulesTogether checks that rules that are due together, such as at a start, are compiled once.
func TestRulesTogether(t *testing.T) {
	t.Parallel()
	r := newRuleRig(t)
	var rules []string
	for i := range 10 * batchSize {
		rules = append(rules, fmt.Sprintf("sourceIP:10.0.%d.%d/32 allow", i>>8, i&255))
	}
	if err := r.apply(t.Context(), rules...); err != nil {
		t.Fatal(err)
	}
	r.table.sets = nil
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { r.Run(ctx); close(ended) }()
	waitFor(t, "all rules are applied", r.Idle())
	cancel()
	waitFor(t, "the end", ended)
	if !slices.Equal(r.table.sets, []int{len(rules)}) {
		t.Errorf("the data path was given rules %d times: %v", len(r.table.sets), r.table.sets)
	}
}

// TestRulesEndNothingLater checks that rules that are no longer in force end no further
// connections.
func TestRulesEndNothingLater(t *testing.T) {
	t.Parallel()
	r := newRuleRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { r.endDropped(ctx); close(ended) }()
	for i, rules := range [][]string{{"sourceIP:10.0.0.0/8 drop"}, {"preference:7 drop"}, {}} {
		if err := r.apply(ctx, rules...); err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			waitFor(t, "the former rules stop ending connections", r.table.cancelled)
		}
		if len(rules) > 0 {
			waitFor(t, "the new rules end connections", r.table.began)
		}
	}
	cancel()
	waitFor(t, "the end", ended)
}

// TestRulesEndingFails checks that connections that a drop rule could not end are logged as an
// error.
func TestRulesEndingFails(t *testing.T) {
	t.Parallel()
	r := newRuleRig(t)
	lines := make(chan string, 9)
	r.Log = slog.New(slog.NewTextHandler(lineWriter(lines), nil))
	r.table.failing = errors.New("no memory")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { r.endDropped(ctx); close(ended) }()
	if err := r.apply(ctx, "sourceIP:10.0.0.0/8 drop"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the rule ends connections", r.table.began)
	select {
	case line := <-lines:
		if !strings.Contains(line, "do not end") || !strings.Contains(line, "no memory") {
			t.Errorf(`got %v, want "do not end" in line, "no memory" in line`, line)
		}
	case <-time.After(10 * time.Second):
		t.Error("the failure is not logged")
	}
	cancel()
	waitFor(t, "the end", ended)
}

// lineWriter sends the lines of a log to a channel.
type lineWriter chan string

func (w lineWriter) Write(line []byte) (int, error) {
	w <- string(line)
	return len(line), nil
}

// TestRulesWithoutAddress checks that rules are in force, with everything that depends on them,
// even if a source address cannot be acquired. An address that cannot be released is retried.
func TestRulesWithoutAddress(t *testing.T) {
	t.Parallel()
	r := newRuleRig(t)
	refused := errors.New("no memory")
	r.kernel.fail = func(string) error { return refused }
	const snat, drop = "sourceIP:10.0.0.0/8 snat=20.20.20.1", "portName:later drop"
	if err := r.apply(t.Context(), snat, drop); !errors.Is(err, refused) {
		t.Errorf("the outcome is %v", err)
	}
	if keys := r.keys(); len(keys) != 2 {
		t.Errorf("the data path has %v", keys)
	}
	if len(r.endings) != 1 {
		t.Error("connections are not judged by the new rules")
	}
	r.links = []netdev.Link{{Index: 7, Name: "later"}}
	r.nextBatch(time.Now())
	r.LinksChanged()
	if due := r.nextBatch(time.Now()); len(due) == 0 {
		t.Error("a new interface is ignored")
	}
	for _, err := range []error{refused, nil} {
		r.kernel.fail = func(string) error { return err }
		if got := r.apply(t.Context(), drop); !errors.Is(got, err) {
			t.Errorf("the outcome is %v, want %v", got, err)
		}
	}
	want := []string{"acquire [20.20.20.1]", "release [20.20.20.1]", "release [20.20.20.1]"}
	if !slices.Equal(r.kernel.events, want) {
		t.Errorf("the calls are %v, want %v", r.kernel.events, want)
	}
}

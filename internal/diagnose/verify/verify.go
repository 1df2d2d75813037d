// Package verify compares desired state with the kernel on a running system.
//
// Rows that user space writes are compared under the lock that guards their writes. A difference
// still counts only if a second pass finds it, after pending changes had time to arrive: in a
// changing system, each pass may find other changes in progress.
package verify

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"loxilb/internal/host/monotime"
	"loxilb/internal/lb/report"
)

// Source compares a part; with repair, it writes differences again.
type Source func(ctx context.Context, o Options) []report.Compared

// Options select the comparison.
type Options struct {
	Whole  bool   // all connections, not a sample
	Sample uint64 // number of the sample, the same for all passes of a run, so they can confirm each other
	Repair bool   // apply differing objects again
}

const (
	// between is the time between passes for pending changes to arrive: at least the time of a
	// loop's pass under load.
	between = 500 * time.Millisecond
	// maxPasses bounds how often unsettled rows are compared.
	maxPasses = 4
	// Shown bounds the reported differences of a table.
	Shown = 100
)

// Verdict is the outcome.
type Verdict string

// The verdicts.
const (
	Same    Verdict = "same"
	Differs Verdict = "differs"
	Unknown Verdict = "unknown" // something could not be read, or did not come to rest
)

// Table is the result for a table.
type Table struct {
	Name        string
	Rows        int // compared in the last pass
	Differences int // that a second pass has confirmed
	Unsettled   int // rows that were about to change in each pass
	Err         error
}

// Finding is a difference, and the result of its repair.
type Finding struct {
	report.Difference
	Repaired bool // a later comparison no longer found it
}

// Report is the outcome.
type Report struct {
	Verdict  Verdict
	Tables   []Table
	Findings []Finding
	Passed   int // differences found in one pass only: changes in progress
	Took     time.Duration
}

// Verifier compares the state of sources with what it should be, one comparison at a time.
type Verifier struct {
	sources []Source
	between time.Duration
	turn    chan struct{} // capacity 1
}

// New returns a Verifier of these sources.
func New(sources ...Source) *Verifier {
	return &Verifier{sources: sources, between: between, turn: make(chan struct{}, 1)}
}

// Run compares everything, and repairs differences if requested.
func (v *Verifier) Run(ctx context.Context, o Options) Report {
	began := time.Now()
	select {
	case v.turn <- struct{}{}:
		defer func() { <-v.turn }()
	case <-ctx.Done():
		return Report{Verdict: Unknown, Tables: []Table{{Name: "turn", Err: ctx.Err()}}, Took: time.Since(began)}
	}
	options := Options{Whole: o.Whole, Sample: rand.Uint64()}
	l := v.runPasses(ctx, options)
	r := l.report()
	if o.Repair && len(l.differences) > 0 && ctx.Err() == nil {
		v.pass(ctx, Options{Whole: options.Whole, Sample: options.Sample, Repair: true})
		monotime.Sleep(ctx, v.between)
		after := v.runPasses(ctx, options)
		r = after.report()
		for _, d := range l.list() {
			if _, left := after.differences[place{d.Table, d.Row}]; !left {
				r.Findings = append(r.Findings, Finding{d, true})
			}
		}
	}
	r.Took = time.Since(began)
	return r
}

// place identifies a difference. Its description may change from pass to pass.
type place struct{ table, row string }

// pass holds the results of the passes so far: the last one, and how often in a row it had each
// difference.
type pass struct {
	compared    []report.Compared
	differences map[place]report.Difference
	seen        map[place]int
	passed      int
}

// runPasses compares until every difference was found twice in a row, and nothing is unsettled.
func (v *Verifier) runPasses(ctx context.Context, o Options) pass {
	now := v.pass(ctx, o)
	for n := 1; n < maxPasses && !now.isStable() && monotime.Sleep(ctx, v.between); n++ {
		next := v.pass(ctx, o)
		next.passed = now.passed
		for at, times := range now.seen {
			if next.seen[at] == 0 {
				next.passed++
			} else {
				next.seen[at] += times
			}
		}
		now = next
	}
	for at, times := range now.seen {
		if times < 2 {
			delete(now.differences, at)
			now.passed++
		}
	}
	return now
}

// isStable reports whether another pass would show nothing else.
func (l *pass) isStable() bool {
	for _, times := range l.seen {
		if times < 2 {
			return false
		}
	}
	return l.unsettled() == 0
}

// pass compares all tables once.
func (v *Verifier) pass(ctx context.Context, o Options) pass {
	l := pass{differences: map[place]report.Difference{}, seen: map[place]int{}}
	for _, source := range v.sources {
		l.compared = append(l.compared, source(ctx, o)...)
	}
	l.compared = joined(l.compared)
	for _, c := range l.compared {
		for _, d := range c.Differences {
			l.differences[place{d.Table, d.Row}], l.seen[place{d.Table, d.Row}] = d, 1
		}
	}
	return l
}

// joined merges the results by table.
func joined(list []report.Compared) (out []report.Compared) {
	at := map[string]int{}
	for _, c := range list {
		i, there := at[c.Table]
		if !there {
			at[c.Table] = len(out)
			out = append(out, c)
			continue
		}
		o := &out[i]
		o.Rows += c.Rows
		o.Unsettled += c.Unsettled
		o.Differences = append(o.Differences, c.Differences...)
		o.Err = cmp.Or(o.Err, c.Err)
	}
	return out
}

func (l *pass) unsettled() (n int) {
	for _, c := range l.compared {
		n += c.Unsettled
	}
	return n
}

func (l *pass) list() []report.Difference {
	out := make([]report.Difference, 0, len(l.differences))
	for _, d := range l.differences {
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b report.Difference) int {
		return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Row, b.Row))
	})
	return out
}

func (l *pass) report() Report {
	r := Report{Verdict: Same, Passed: l.passed}
	byTable := map[string]int{}
	for _, d := range l.list() {
		if byTable[d.Table]++; byTable[d.Table] <= Shown {
			r.Findings = append(r.Findings, Finding{Difference: d})
		}
	}
	for _, c := range l.compared {
		r.Tables = append(r.Tables, Table{Name: c.Table, Rows: c.Rows, Differences: byTable[c.Table], Unsettled: c.Unsettled, Err: c.Err})
		if c.Err != nil {
			r.Verdict = Unknown
		}
	}
	if len(l.differences) > 0 {
		r.Verdict = Differs
	}
	return r
}

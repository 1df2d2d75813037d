package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"loxilb/internal/lb/report"
)

// fake returns prepared rows for each pass, the last ones forever. Repair removes them.
type fake struct {
	looks    [][]string
	settling int // passes in which something is unsettled
	err      error
	repaired bool
	n        int
}

func (f *fake) look(_ context.Context, o Options) []report.Compared {
	c := report.Compared{Table: "services", Rows: 3, Err: f.err}
	if f.settling > f.n {
		c.Unsettled = 1
	}
	if i := min(f.n, len(f.looks)-1); i >= 0 && !f.repaired {
		for _, row := range f.looks[i] {
			c.Differences = append(c.Differences, report.Difference{Table: c.Table, Row: row, What: "is missing"})
		}
	}
	f.repaired = f.repaired || o.Repair
	f.n++
	return []report.Compared{c, {Table: "vips", Rows: 1}, {Table: "services", Rows: 1}}
}

// TestLooks checks that a difference counts if two passes in a row find it, that changing rows are
// read again for a limited number of times, and that unreadable ones are reported.
func TestLooks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fake    fake
		verdict Verdict
		found   int
		passed  int
		looks   int
	}{
		"nothing":             {verdict: Same, looks: 1},
		"stays":               {fake: fake{looks: [][]string{{"a"}}}, verdict: Differs, found: 1, looks: 2},
		"passes":              {fake: fake{looks: [][]string{{"a"}, {}}}, verdict: Same, passed: 1, looks: 2},
		"each time another":   {fake: fake{looks: [][]string{{"a"}, {"b"}, {"c"}, {"d"}}}, verdict: Same, passed: 4, looks: 4},
		"one comes later":     {fake: fake{looks: [][]string{{"a"}, {"a", "b"}}}, verdict: Differs, found: 2, looks: 3},
		"comes to rest":       {fake: fake{settling: 2}, verdict: Same, looks: 3},
		"never comes to rest": {fake: fake{settling: 100}, verdict: Same, looks: 4},
		"cannot be read":      {fake: fake{err: errors.New("no such map")}, verdict: Unknown, looks: 1},
	} {
		v := New(c.fake.look)
		v.between = time.Millisecond
		r := v.Run(t.Context(), Options{})
		if r.Verdict != c.verdict || len(r.Findings) != c.found || r.Passed != c.passed || c.fake.n != c.looks {
			t.Errorf("%s: %s, %d found, %d passed, %d looks; want %s, %d, %d, %d", name, r.Verdict, len(r.Findings), r.Passed, c.fake.n, c.verdict, c.found, c.passed, c.looks)
		}
		if len(r.Tables) != 2 || r.Tables[0].Rows != 4 {
			t.Errorf("%s: tables are %+v", name, r.Tables)
		}
	}
}

// TestSample checks that all passes of a run use the same sample, so a difference in it is
// found, and that another run uses another sample.
func TestSample(t *testing.T) {
	t.Parallel()
	var looked []uint64
	v := New(func(_ context.Context, o Options) []report.Compared {
		if !o.Repair {
			looked = append(looked, o.Sample)
		}
		return []report.Compared{{Table: "connections", Differences: []report.Difference{{Table: "connections", Row: fmt.Sprint(o.Sample), What: "is missing"}}}}
	})
	v.between = time.Millisecond
	for range 2 {
		if r := v.Run(t.Context(), Options{Repair: true}); r.Verdict != Differs {
			t.Errorf("got %+v, want r.Verdict == Differs", r)
		}
	}
	if n := len(slices.Compact(looked)); n != 2 {
		t.Errorf("%d samples in two runs", n)
	}
}

// TestRepair checks that repaired rows are listed, and that the verdict is that of the state
// afterwards.
func TestRepair(t *testing.T) {
	t.Parallel()
	f := fake{looks: [][]string{{"a", "b"}}}
	v := New(f.look)
	v.between = time.Millisecond
	r := v.Run(t.Context(), Options{Repair: true})
	if r.Verdict != Same || len(r.Findings) != 2 || !r.Findings[0].Repaired {
		t.Errorf("got %+v, want r.Verdict == Same, 2 elements in r.Findings, r.Findings[0].Repaired", r)
	}
}

package netdev

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestCompare(t *testing.T) {
	t.Parallel()
	d := newDoctor(nil, nil)
	one, two := Problem{What: "one"}, Problem{What: "two"}
	appeared, gone := d.compare([]Problem{one})
	if !slices.Equal(appeared, []Problem{one}) || gone != nil {
		t.Errorf("got %v %v, want appeared == []Problem{one}, gone == nil", appeared, gone)
	}
	appeared, gone = d.compare([]Problem{one, two})
	if !slices.Equal(appeared, []Problem{two}) || gone != nil {
		t.Errorf("got %v %v, want appeared == []Problem{two}, gone == nil", appeared, gone)
	}
	if known := d.Problems(); len(known) != 2 || known[0].Since.IsZero() {
		t.Errorf("known: %+v", known)
	}
	appeared, gone = d.compare(nil)
	if appeared != nil || len(gone) != 2 {
		t.Errorf("got %v %v, want appeared == nil, 2 elements in gone", appeared, gone)
	}
	var many []Problem
	for i := range 20 {
		many = append(many, Problem{What: fmt.Sprintf("%02d", i)})
	}
	if got := BoundedProblems(many, len(many), "thing", "things"); len(got) != ProblemsShown+1 || got[ProblemsShown] != (Problem{
		"thing", "others", "12 more things", got[ProblemsShown].Hint,
	}) {
		t.Errorf("got %+v, want %d problems, the last one with the number of the others", got, ProblemsShown+1)
	}
	shown := BoundedProblems(many, len(many), "thing", "things")
	d.compare(append(shown, shown[0])) // the same problem, found twice
	var order []Problem
	for _, k := range d.Problems() {
		order = append(order, k.Problem)
	}
	if !slices.Equal(order, shown) {
		t.Errorf("known: %v, want the order in which they were found, each once: %v", order, shown)
	}
}

// TestPeriodicCheck checks that endless changes, as of a next hop that never resolves, do not
// prevent retries.
func TestPeriodicCheck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		checks, periodic := 0, 0
		var d *Doctor
		d = newDoctor(func(_ context.Context, isPeriodic bool) []Problem {
			checks++
			if isPeriodic {
				periodic++
			}
			d.RequestCheck() // something has changed again by the next check
			return nil
		}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		go d.Run(ctx, nil)
		time.Sleep(10*doctorEvery + doctorGap)
		cancel()
		synctest.Wait()
		if periodic < 5 || checks < 50 {
			t.Errorf("%d of %d checks in %v were periodic", periodic, checks, 10*doctorEvery)
		}
	})
}

package rest

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestWarningsOnce checks that an edit that runs three times, such as one that checks for a
// lockout, gives one warning.
func TestWarningsOnce(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	var shared Warnings
	for range 3 {
		shared.Add("service %s does not exist", "a")
		shared.Write(w)
		var own Warnings
		own.Add("weight has no effect")
		own.Write(w)
	}
	if diff := cmp.Diff([]string{`299 loxilb "service a does not exist"`, `299 loxilb "weight has no effect"`}, w.Header().Values("Warning")); diff != "" {
		t.Errorf("the warnings differ (-want +got):\n%s", diff)
	}
}

// TestManyWarnings checks that thousands of warnings are not compared pairwise, and that the
// response has only a few.
func TestManyWarnings(t *testing.T) {
	t.Parallel()
	const many = 200_000
	begun, w := time.Now(), httptest.NewRecorder()
	var notes Warnings
	for range 2 {
		for i := range many {
			notes.Add("service number %6d has a weight without effect", i)
		}
	}
	notes.Write(w)
	if got := w.Header().Values("Warning"); len(got) != MaxWarnings || got[MaxWarnings-1] != `299 loxilb "and 199993 more of the kind"` {
		t.Errorf("got %q, want %d warnings, the last one with the number of those left out", got, MaxWarnings)
	}
	if took := time.Since(begun); took > 20*time.Second { // pairwise comparison would take minutes
		t.Errorf("adding the warnings takes %v", took)
	}
}

package lb

import (
	"testing"
	"time"
)

// TestSteady: a time that was read is the same time, and goes by the clock that nobody sets: Round(0) makes another of it.
func TestSteady(t *testing.T) {
	t.Parallel()
	for _, stored := range []time.Time{time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC), time.Now().Add(time.Hour).Round(0).UTC()} {
		got := Steady(stored)
		if !got.Equal(stored) || got == got.Round(0) {
			t.Errorf("%v became %v", stored, got)
		}
	}
	if got := Steady(time.Time{}); !got.IsZero() {
		t.Errorf("none became %v", got)
	}
}

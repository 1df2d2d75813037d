package monotime

import (
	"testing"
	"time"
)

// TestStored checks that a stored time does not depend on the wall clock until the machine
// restarts, and then depends on it alone.
func TestStored(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	for _, left := range []time.Duration{-time.Hour, time.Minute, time.Hour} {
		at := time.Now().Add(left)
		for _, wrong := range []time.Duration{0, -50 * year, -time.Minute, time.Minute, 10 * year} {
			m := NewStored(at)
			m.At = m.At.Add(wrong) // as if the clock had been set since
			if got := m.Time(); got.Sub(at).Abs() > time.Second || got == got.Round(0) {
				t.Errorf("%v from now, while the clock is wrong by %v, became %v from now", left, wrong, time.Until(got))
			}
			m.Boot = "another"
			if got := m.Time(); !got.Equal(m.At) {
				t.Errorf("after a start of the machine, %v became %v", m.At, got)
			}
		}
		if m := NewStored(at); !m.Time().Equal(m.At) {
			t.Errorf("%v became %v, though nobody has set the clock", m.At, m.Time())
		}
	}
}

// TestFromWall checks that a time keeps its value and has a monotonic reading, which Round(0) would
// drop.
func TestFromWall(t *testing.T) {
	t.Parallel()
	for _, stored := range []time.Time{time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC), time.Now().Add(time.Hour).Round(0).UTC()} {
		got := FromWall(stored)
		if !got.Equal(stored) || got == got.Round(0) {
			t.Errorf("%v became %v", stored, got)
		}
	}
	for _, far := range []time.Time{time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), time.Date(1, 2, 3, 0, 0, 0, 0, time.UTC)} {
		if got := FromWall(far); !got.Equal(far) {
			t.Errorf("%v became %v", far, got)
		}
		if got := NewStored(far).Time(); !got.Equal(far) {
			t.Errorf("%v became %v when it was stored", far, got)
		}
	}
	if got := FromWall(time.Time{}); !got.IsZero() {
		t.Errorf("the zero time became %v", got)
	}
}

package loader

import (
	"testing"
	"time"
)

// TestJiffies checks that a time in ticks is correct for any uptime: the product would overflow
// after 106 days.
func TestJiffies(t *testing.T) {
	t.Parallel()
	s := Settings{hz: 1000}
	for d, want := range map[time.Duration]uint32{
		0: 1, time.Second / 2: 500, 40 * 24 * time.Hour: 40 * 86_400_000, 200*24*time.Hour + time.Second/4: (200*86_400_000 + 250) & (1<<32 - 1),
	} {
		if got := s.Jiffies(d); got != want {
			t.Errorf("%v: %d ticks, want %d", d, got, want)
		}
	}
}

// TestNearestPower checks rounding at half a step up or down, by ratio.
func TestNearestPower(t *testing.T) {
	t.Parallel()
	for n, want := range map[uint64]int{
		1: 1, 2: 2, 3: 4, 262144: 262144, 303804: 262144, 370727: 262144, 370728: 524288, 524287: 524288, 795364: 1048576, 1 << 30: 1 << 30,
	} {
		if got := nearestPower(n); got != want {
			t.Errorf("%d: %d, want %d", n, got, want)
		}
	}
}

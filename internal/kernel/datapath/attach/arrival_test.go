package attach

import (
	"testing"
	"time"
)

// TestArrivals: the kernel is asked once in a second, however many connections end.
func TestArrivals(t *testing.T) {
	t.Parallel()
	const none = -1
	var a arrivals
	now := time.Now()
	a.of(now)[none] = nil // a mark on what was listed
	for after, kept := range map[time.Duration]bool{0: true, arrivalsAge - 1: true, arrivalsAge: false} {
		var again arrivals
		again.at, again.macs = a.at, a.macs
		if _, ok := again.of(now.Add(after))[none]; ok != kept {
			t.Errorf("after %v: the list is kept: %t; want %t", after, ok, kept)
		}
	}
}

package attach

import (
	"testing"
	"time"
)

// TestArrivals checks that the kernel is queried once a second, however many connections end.
func TestArrivals(t *testing.T) {
	t.Parallel()
	const none = -1
	var a arrivals
	now := time.Now()
	a.addresses(now)[none] = nil // marks the listed result
	for after, kept := range map[time.Duration]bool{0: true, arrivalsAge - 1: true, arrivalsAge: false} {
		var again arrivals
		again.at, again.macs = a.at, a.macs
		if _, ok := again.addresses(now.Add(after))[none]; ok != kept {
			t.Errorf("after %v: the list is kept: %t; want %t", after, ok, kept)
		}
	}
}

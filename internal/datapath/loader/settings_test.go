package loader

import "testing"

// TestNearestPower: half a step up or down, in ratio.
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

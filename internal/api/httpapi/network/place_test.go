package network

import "testing"

// TestPlaces checks that places are in the kernel's order, so that pages neither repeat nor omit
// routes.
func TestPlaces(t *testing.T) {
	t.Parallel()
	for _, order := range [][]string{
		{"10.0.0.0/16 0 0 0", "10.0.0.0/8 4 0 0", "10.0.0.0/8 0 0 0", "10.0.0.0/8 0 1 0", "10.0.0.0/8 0 1 1", "10.1.0.0/16 0 0 0", "2001:db8::/64 0 0 0"},
		{"2001:db8:0:1::/64 0 0 0", "2001:db8::/32 0 0 0", "2001:db8::/32 0 1 0", "2001:db9::/64 0 0 0"},
	} {
		for i := range order {
			for j := range order {
				a, b := parseRoutePlace(order[i]), parseRoutePlace(order[j])
				if got := a.compare(&b); got < 0 != (i < j) || got > 0 != (i > j) {
					t.Errorf("%s compared with %s: got %d", order[i], order[j], got)
				}
			}
		}
	}
}

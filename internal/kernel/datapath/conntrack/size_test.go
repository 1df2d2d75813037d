package conntrack

import "testing"

// TestLargest checks that the numbers of groups fit in table_state.size for 100,000,000
// connections, the limit of --ct-max.
func TestLargest(t *testing.T) {
	if n := Groups(100_000_000); n >= 1<<sizeBits {
		t.Errorf("%d groups, and numbers have %d bits", n, sizeBits)
	}
}

package conntrack

import "testing"

// TestLargest: the groups of a table for 100,000,000 connections, which --ct-max allows, fit their
// numbers in table_state.size.
func TestLargest(t *testing.T) {
	if n := Groups(100_000_000); n >= 1<<sizeBits {
		t.Errorf("%d groups, and numbers have %d bits", n, sizeBits)
	}
}

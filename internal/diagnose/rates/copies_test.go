package rates

import (
	"testing"
	"time"
)

// TestCopies checks that an endpoint has rates if other nodes have opened all of its connections.
func TestCopies(t *testing.T) {
	t.Parallel()
	b := newBench(row(0, 1, 0, 0))
	b.after(0)
	b.grow(0, 0, 500)
	b.after(time.Second)
	if got := b.total(); got[BytesIn] != 500 || got[Connections] != 0 {
		t.Errorf("%v bytes and %v connections per second, want 500 and 0", got[BytesIn], got[Connections])
	}
}

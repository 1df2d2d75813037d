package connections

import (
	"context"
	"errors"
	"testing"
	"time"

	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
	"loxilb/test/dptest"
)

// TestEndInPieces checks that calls without time for the whole table reach its end, each from where
// the previous one stopped.
func TestEndInPieces(t *testing.T) {
	t.Parallel()
	const n = 300
	d := open(t, loader.Settings{Connections: 2000})
	dptest.Fill(t, d.shared, n, dptest.Jiffies(t))
	ended, calls, next := 0, 0, 0
	for more := true; more; calls++ {
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		done, err := d.EndConnections(ctx, next, lb.MaxEndRate, func(*report.Connection) bool { return true })
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v, want no error or context.DeadlineExceeded", err)
		}
		if err != nil && done.Reset+done.Silent == 0 && done.Next == next {
			t.Fatalf("call %d has done nothing", calls)
		}
		ended, next, more = ended+done.Reset+done.Silent, done.Next, err != nil
	}
	if left := len(dptest.Connections(t, d.shared)); ended != n || left != 0 || calls < 2 {
		t.Errorf("%d of %d connections ended in %d calls, %d entries are left", ended, n, calls, left)
	}
}

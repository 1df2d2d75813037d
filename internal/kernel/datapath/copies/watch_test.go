package copies

import (
	"math"
	"testing"
	"time"

	"loxilb/internal/host/monotime"
	"loxilb/internal/kernel/datapath/bpf"
)

// TestWaited checks the time that a copy has waited in the ring while the process was stopped.
func TestWaited(t *testing.T) {
	t.Parallel()
	const stopped = time.Minute
	row := &bpf.TcConnectionCopy{Made: uint32((monotime.Uptime() - stopped) >> bpf.TcCopyLimitCOPY_TIME_SHIFT)}
	if got := waited(row); got < stopped-time.Second || got > 2*stopped {
		t.Errorf("a copy has waited %v, want %v", got, stopped)
	}
	row.Made += uint32(2 * stopped >> bpf.TcCopyLimitCOPY_TIME_SHIFT) // by another clock, or rounded up
	if got := waited(row); got != 0 {
		t.Errorf("a copy of the future has waited %v", got)
	}
}

// TestTicks checks that an age that jiffies cannot express becomes the maximum age, not a small
// one.
func TestTicks(t *testing.T) {
	t.Parallel()
	for age, want := range map[time.Duration]uint32{0: 0, time.Second: 1000, 50 * 24 * time.Hour: math.MaxInt32} {
		if got := ticks(age, time.Millisecond); got != want {
			t.Errorf("%v are %d ticks, want %d", age, got, want)
		}
	}
}

package copies

import (
	"testing"
	"time"

	"loxilb/internal/host/monotime"
	"loxilb/internal/kernel/datapath/bpf"
)

// TestWaited checks for how long a copy has waited in the ring while the process was stopped.
func TestWaited(t *testing.T) {
	t.Parallel()
	const stopped = time.Minute
	row := &bpf.TcConnectionCopy{Made: uint32((monotime.Uptime() - stopped) >> bpf.TcCopyLimitCOPY_TIME_SHIFT)}
	if got := waited(row); got < stopped-time.Second || got > 2*stopped {
		t.Errorf("a copy has waited %v, want %v", got, stopped)
	}
}

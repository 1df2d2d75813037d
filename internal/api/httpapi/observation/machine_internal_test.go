package observation

import (
	"testing"
	"time"
)

func TestUnits(t *testing.T) {
	t.Parallel()
	for bytes, want := range map[uint64]string{0: "0", 1023: "1023", 1024: "1.0K", 10 << 10: "10K", 1536 << 20: "1.5G", 1 << 62: "4.0E", ^uint64(0): "16E"} {
		if got := size(bytes); got != want {
			t.Errorf("%d is %s, want %s", bytes, got, want)
		}
	}
	for d, want := range map[time.Duration]string{0: "0:00.00", 61230 * time.Millisecond: "1:01.23", 100 * time.Hour: "6000:00.00"} {
		if got := cpuTime(d); got != want {
			t.Errorf("%s is %s, want %s", d, got, want)
		}
	}
}

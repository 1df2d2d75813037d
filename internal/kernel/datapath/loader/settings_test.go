package loader

import (
	"testing"
	"time"

	"loxilb/internal/kernel/datapath/bpf"
)

// TestJiffies checks that a time in ticks is correct for any uptime: the product would overflow
// after 106 days.
func TestJiffies(t *testing.T) {
	t.Parallel()
	s := Settings{hz: 1000}
	for d, want := range map[time.Duration]uint32{
		0: 1, time.Second / 2: 500, 40 * 24 * time.Hour: 40 * 86_400_000, 200*24*time.Hour + time.Second/4: (200*86_400_000 + 250) & (1<<32 - 1),
	} {
		if got := s.Jiffies(d); got != want {
			t.Errorf("%v: %d ticks, want %d", d, got, want)
		}
	}
}

// TestNearestPower checks rounding at half a step up or down, by ratio.
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

// TestPairs checks that each connection of a table may use another pair of source address and
// endpoint: an endpoint with --egress that scans addresses would use up the pairs of all services.
func TestPairs(t *testing.T) {
	t.Parallel()
	const least = uint32(bpf.TcLimitMAX_ENDPOINTS)
	for connections, want := range map[int]uint32{1024: least, 262_144: least, 1 << 20: 1 << 20, 100_000_000: maxPairs} {
		spec, err := bpf.LoadTc()
		if err != nil {
			t.Fatal(err)
		}
		s := Settings{Connections: connections}
		if err := s.complete(); err != nil {
			t.Fatal(err)
		}
		if err := s.Configure(spec); err != nil {
			t.Fatal(err)
		}
		if n := spec.Maps["snat_usages"].InnerMap.MaxEntries; n != want {
			t.Errorf("%d connections have room for %d pairs, want %d", connections, n, want)
		}
	}
}

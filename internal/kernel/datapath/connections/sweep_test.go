package connections

import (
	"testing"
	"time"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/dptest"
	"loxilb/internal/kernel/datapath/loader"
)

// TestSweep: living connections stay, dead ones go, and their count is given back.
func TestSweep(t *testing.T) {
	d := open(t, loader.Settings{Connections: 2000})
	now := dptest.Jiffies(t)
	dptest.Fill(t, d.shared, 1000, now)
	if err := d.shared.EndpointStates.Put(uint32(0), bpf.TcEndpointState{Connections: 1000, Active: 1000, Tracked: 1000}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		age          uint32 // seconds
		ended, alive uint64
	}{{0, 0, 1000}, {7439, 0, 1000}, {7443, 1000, 0}} {
		dptest.Fill(t, d.shared, int(c.alive+c.ended), now-c.age*d.shared.Jiffies(time.Second))
		before := d.Swept().Ended
		if err := d.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		var state bpf.TcEndpointState
		if err := d.shared.EndpointStates.Lookup(uint32(0), &state); err != nil {
			t.Fatal(err)
		}
		if got := d.Swept().Ended - before; got != c.ended || state.Tracked != c.alive {
			t.Errorf("silent for %d s: %d ended, %d counted alive; want %d and %d", c.age, got, state.Tracked, c.ended, c.alive)
		}
	}
}

// BenchmarkSweep is a sweep of a million living connections.
func BenchmarkSweep(b *testing.B) {
	const n = 1_000_000
	d := open(b, loader.Settings{Connections: n})
	dptest.Fill(b, d.shared, n, dptest.Jiffies(b))
	var total, longest time.Duration
	before := d.Swept().Visited
	for b.Loop() {
		if err := d.Sweep(b.Context()); err != nil {
			b.Fatal(err)
		}
		total += d.Swept().Last
		longest = max(longest, d.Swept().Longest)
	}
	if visited := d.Swept().Visited - before; visited < uint64(b.N)*2*n*999/1000 {
		b.Errorf("visited %d of %d entries", visited, b.N*2*n)
	}
	b.ReportMetric(float64(total.Milliseconds())/float64(b.N), "cpu-ms/sweep")
	b.ReportMetric(float64(longest.Microseconds()), "longest-slice-us")
}

package datapath

import (
	"testing"
	"time"

	"loxilb/internal/datapath/bpf"
)

// fill puts n connections into the table: established, last seen at the given time in jiffies.
func fill(t testing.TB, d *Datapath, n int, seen uint32) {
	t.Helper()
	const batch = 65536
	flags := uint8(bpf.TcConnectionFlagCONN_REPLIED | bpf.TcConnectionFlagCONN_ASSURED)
	keys := make([]bpf.TcConnectionKey, 0, batch)
	rows := make([]bpf.TcConnection, 0, batch)
	flush := func() {
		if _, err := d.obj.Connections.BatchUpdate(keys, rows, nil); err != nil {
			t.Fatal(err)
		}
		keys, rows = keys[:0], rows[:0]
	}
	client := bpf.TcIpAddr{Word: [4]uint32{0, 0, 0xffff0000, 0}}
	vip, endpoint := client, client
	vip.Word[3], endpoint.Word[3] = 0x01000014, 0x0100001f
	for i := range n {
		client.Word[3] = uint32(0x0a000000 + i>>14)
		port := uint16(i & 0x3fff)
		keys = append(keys,
			bpf.TcConnectionKey{Saddr: client, Daddr: vip, Sport: port, Dport: 80, Protocol: 6},
			bpf.TcConnectionKey{Saddr: endpoint, Daddr: client, Sport: 80, Dport: port, Protocol: 6})
		rows = append(rows,
			bpf.TcConnection{Saddr: client, Daddr: endpoint, Sport: port, Dport: 80, Seen: seen, Flags: flags},
			bpf.TcConnection{Saddr: vip, Daddr: client, Sport: 80, Dport: port, Seen: seen,
				Flags: flags | uint8(bpf.TcConnectionFlagCONN_REPLY_DIRECTION)})
		if len(keys) == batch {
			flush()
		}
	}
	if len(keys) > 0 {
		flush()
	}
}

// TestSweep: living connections stay, dead ones go, and their count is given back.
func TestSweep(t *testing.T) {
	d, err := Load(Config{Connections: 2000})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	now := jiffiesNow(t)
	fill(t, d, 1000, now)
	if err := d.obj.EndpointStates.Put(uint32(0), bpf.TcEndpointState{Connections: 1000, Active: 1000}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		age          uint32 // seconds
		ended, alive uint64
	}{{0, 0, 1000}, {7439, 0, 1000}, {7443, 1000, 0}} {
		fill(t, d, int(c.alive+c.ended), now-c.age*d.hz)
		before := d.Swept().Ended
		if err := d.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		var state bpf.TcEndpointState
		if err := d.obj.EndpointStates.Lookup(uint32(0), &state); err != nil {
			t.Fatal(err)
		}
		if got := d.Swept().Ended - before; got != c.ended || state.Active != c.alive {
			t.Errorf("silent for %d s: %d ended, %d counted alive; want %d and %d", c.age, got, state.Active, c.ended, c.alive)
		}
	}
}

// BenchmarkSweep is a sweep of a million living connections.
func BenchmarkSweep(b *testing.B) {
	const n = 1_000_000
	d, err := Load(Config{Connections: n})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	fill(b, d, n, jiffiesNow(b))
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

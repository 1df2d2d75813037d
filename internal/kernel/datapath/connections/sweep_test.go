package connections

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/kernel/datapath/testrun"
	"loxilb/internal/lb/report"
	"loxilb/test/dptest"
)

// TestSweep checks that live connections stay, and that expired ones are removed and their counts
// decremented.
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
		if last := d.Swept().Last; last <= 0 || d.cost < last {
			t.Errorf("the sweep cost %v, of which its slices were %v", d.cost, last)
		}
	}
}

// TestPauseAfter checks that sweeps use one percent of a CPU, ten with a table that is nearly full,
// and half of it under pressure.
func TestPauseAfter(t *testing.T) {
	t.Parallel()
	const ms, period = time.Millisecond, 5 * time.Second
	entries := func(n int64) report.Pressure { return report.Pressure{Entries: n, EntriesMax: 1000} }
	halfOpen := func(tcp, others int64) report.Pressure {
		return report.Pressure{EntriesMax: 1000, HalfOpenTCP: tcp, HalfOpenOthers: others, HalfOpenMax: 1000}
	}
	pressed := report.Pressure{PortsShort: true, EntriesMax: 1000, HalfOpenMax: 1000}
	for name, c := range map[string]struct {
		cost        time.Duration
		p           report.Pressure
		pause, look time.Duration
	}{
		"calm":                    {10 * ms, entries(250), period, 500 * ms},
		"calm, expensive":         {80 * ms, entries(250), 8 * time.Second, 500 * ms},
		"over a quarter":          {10 * ms, entries(251), period, 100 * ms},
		"over a quarter, slow":    {80 * ms, entries(251), 8 * time.Second, 100 * ms},
		"half-open":               {80 * ms, halfOpen(60, 60), 8 * time.Second, 500 * ms},
		"three quarters":          {80 * ms, entries(750), 8 * time.Second, 100 * ms},
		"nearly full":             {10 * ms, entries(751), time.Second, 100 * ms},
		"nearly full, expensive":  {200 * ms, entries(751), 2 * time.Second, 100 * ms},
		"pressed":                 {10 * ms, pressed, 100 * ms, 100 * ms},
		"pressed, expensive":      {300 * ms, pressed, 300 * ms, 100 * ms},
		"half-open, under attack": {300 * ms, halfOpen(125, 0), 300 * ms, 100 * ms},
	} {
		if pause, look := pauseAfter(c.cost, c.p, period); pause != c.pause || look != c.look {
			t.Errorf("%s: pause %v, look after %v; want %v and %v", name, pause, look, c.pause, c.look)
		}
	}
}

// TestPauseAfterEnds checks that the next sweep does not wait longer because this one has ended
// many connections: those that expire meanwhile would fill the table.
func TestPauseAfterEnds(t *testing.T) {
	const n = 100_000
	d := open(t, loader.Settings{Connections: 2 * n})
	dptest.Fill(t, d.shared, n, dptest.Jiffies(t)-8000*d.shared.Jiffies(time.Second))
	if err := d.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := d.Swept()
	if s.Ended != n {
		t.Fatalf("%d connections ended, want %d", s.Ended, n)
	}
	if pause, _ := d.sweepPause(0); pause > 100*(d.cost-s.Last/2) {
		t.Errorf("a pause of %v after a sweep that cost %v, of which its slices were %v", pause, d.cost, s.Last)
	}
}

// TestRemovedKeys checks that the programs that sweep hashes return how many keys they have
// removed: user space pauses after some, since the kernel would free all rows at once while packets
// wait.
func TestRemovedKeys(t *testing.T) {
	t.Parallel()
	d := open(t, loader.Settings{Connections: 1024})
	if err := errors.Join(d.shared.Persists.Make(), d.shared.SNATUsages.Make()); err != nil {
		t.Fatal(err)
	}
	clients, pairs := make([]bpf.TcPersistKey, sweptKeys), make([]bpf.TcSnatPair, sweptKeys)
	for i := range clients {
		clients[i].Client.Word[3], pairs[i].Endpoint.Word[3] = uint32(i), uint32(i)
	}
	_, err := d.shared.Persists.Table().BatchUpdate(clients, make([]bpf.TcPersistEntry, sweptKeys), nil)
	_, err2 := d.shared.SNATUsages.Table().BatchUpdate(pairs, make([]bpf.TcSnatUsage, sweptKeys), nil)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	frame := make([]byte, etherBytes)
	for program, keys := range map[string][]byte{sweepPersists: appendKeys(frame, clients), sweepSNAT: appendKeys(frame, pairs)} {
		for _, want := range []uint32{sweptKeys, 0} {
			n, err := d.programs.run(program, &ebpf.RunOptions{Data: keys, Context: testrun.SKB{Mark: sweptKeys}})
			if err != nil || n != want {
				t.Errorf("%s returns %d, %v; want %d", program, n, err, want)
			}
		}
	}
}

// TestPauseOfRemoval checks that a sweep of clients pauses after some that it has removed: when it
// is stopped, it notices that in a pause.
func TestPauseOfRemoval(t *testing.T) {
	t.Parallel()
	const n = 4 * sweptRemoved
	d := open(t, loader.Settings{Connections: n})
	if err := d.shared.Persists.Make(); err != nil {
		t.Fatal(err)
	}
	keys, table := make([]bpf.TcPersistKey, n), d.shared.Persists.Table()
	for i := range keys {
		keys[i].Client.Word[3] = uint32(i)
	}
	if _, err := table.BatchUpdate(keys, make([]bpf.TcPersistEntry, n), nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := sweepMap[bpf.TcPersistKey, bpf.TcPersistEntry](ctx, d, sweepPersists, table); !errors.Is(err, context.Canceled) {
		t.Fatalf("a stopped sweep: %v", err)
	}
	if left, err := rows.Read[bpf.TcPersistKey, bpf.TcPersistEntry](table); err != nil || len(left) != n-sweptRemoved {
		t.Errorf("%d of %d clients remain, %v; want %d removed", len(left), n, err, sweptRemoved)
	}
}

// BenchmarkSweep sweeps a million live connections.
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

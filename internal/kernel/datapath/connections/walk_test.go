package connections

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/tables"
	"loxilb/internal/lb/report"
	"loxilb/test/dptest"
)

// assignEndpoint assigns n connections, spread over the table, to an endpoint.
func assignEndpoint(t testing.TB, d *Table, endpoint uint32, n, of int) {
	t.Helper()
	seen := 0
	err := dptest.ChangeConnections(d.shared.Conntrack, func(_ bpf.TcConnectionKey, c *bpf.TcConnection) bool {
		if c.Flags&uint8(bpf.TcConnectionFlagCONN_REPLY_DIRECTION) != 0 {
			return false
		}
		if seen++; seen%(of/n) != 0 {
			return false
		}
		c.Endpoint = endpoint
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestWalk checks that a walk finds exactly the connections of the given endpoints, so a second one
// finds none: at the recorded locations, and in the whole table if they are not there.
func TestWalk(t *testing.T) {
	const all, few, endpoint = 20_000, 100, 7
	d := open(t, loader.Settings{Connections: 2 * all})
	if err := d.grow(t.Context(), 4*all); err != nil { // rows that move during a walk are visited twice
		t.Fatal(err)
	}
	dptest.Fill(t, d.shared, all, dptest.Jiffies(t))
	assignEndpoint(t, d, endpoint, few, all)
	for _, known := range []bool{false, true} {
		if known {
			if err := d.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		groups, err := d.shared.Locations.Groups([]uint32{endpoint})
		if err != nil || (len(groups) > 0) != known || len(groups) > 2*few { // a row that was moved is recorded in both groups
			t.Errorf("its connections are known to be in %d groups (%v); want some: %t", len(groups), err, known)
		}
		walkFinds(t, d, endpoint, few)
	}
}

func walkFinds(t *testing.T, d *Table, endpoint uint32, few int) {
	t.Helper()
	found, err := d.walk(t.Context(), []tables.DueEndpoint{{ID: endpoint, Tracked: uint64(few)}, {ID: 9, Tracked: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 1 || len(found[endpoint]) != few {
		t.Errorf("%d endpoints with connections, %d of the one; want 1 and %d", len(found), len(found[endpoint]), few)
	}
	done := report.Ended{}
	for _, p := range found[endpoint] {
		p.endpoint++
		if err := d.endBoth(p, &done); err != nil {
			t.Fatal(err)
		}
	}
	if done != (report.Ended{}) {
		t.Errorf("%+v ended as connections of another endpoint", done)
	}
}

// TestWalkInParts checks that a walk returns a bounded number of connections of all endpoints
// together, that endpoints wait for each other before the next walk while many are queued, and that
// further walks find the rest: deleting a service may end millions of connections.
func TestWalkInParts(t *testing.T) {
	t.Parallel()
	const all, endpoints, limit = 4_000, 8, 1_000
	d := open(t, loader.Settings{Connections: 2 * all})
	d.stopGrowth()
	d.findLimit = limit
	dptest.Fill(t, d.shared, all, dptest.Jiffies(t))
	shareOut(t, d, endpoints)
	var due []tables.DueEndpoint
	for id := range uint32(endpoints) {
		due = append(due, tables.DueEndpoint{ID: id, Tracked: all / endpoints})
	}
	ended := 0
	for more := true; more; clear(d.ends) {
		found, err := d.walk(t.Context(), d.enterDue(due))
		if err != nil {
			t.Fatal(err)
		}
		d.enqueue(due, found)
		before := ended
		for _, e := range d.ends {
			n := len(e.queue)
			if n > limit/endpoints {
				t.Errorf("a walk found %d connections of an endpoint, want at most %d", n, limit/endpoints)
			}
			if err := d.endQueued(e, n); err != nil {
				t.Fatal(err)
			}
			if ended += n; ended == limit/endpoints {
				checkWaits(t, d, due, e)
			}
		}
		more = ended > before
	}
	if ended != all {
		t.Errorf("%d connections were found, want %d", ended, all)
	}
}

// checkWaits checks how long an endpoint without queued connections waits for others, which have
// many.
func checkWaits(t *testing.T, d *Table, due []tables.DueEndpoint, e *ending) {
	t.Helper()
	for _, tc := range []struct {
		late time.Duration
		want int
	}{{-lookAgain, 0}, {0, 0}, {lookRarely, 1}} {
		e.look = time.Now().Add(-tc.late)
		if walk := d.enterDue(due); len(walk) != tc.want {
			t.Errorf("%v after it was due, a walk begins for %d endpoints, want %d", tc.late, len(walk), tc.want)
		}
	}
}

// shareOut gives the connections of a table to so many endpoints.
func shareOut(t *testing.T, d *Table, endpoints uint32) {
	t.Helper()
	err := dptest.ChangeConnections(d.shared.Conntrack, func(_ bpf.TcConnectionKey, c *bpf.TcConnection) bool {
		c.Endpoint = uint32(c.Sport+c.Dport) % endpoints
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestWalkPastSockets checks that an endpoint's connections of this machine's own sockets, which
// are in no table, are not searched for.
func TestWalkPastSockets(t *testing.T) {
	t.Parallel()
	const all, few, sockets, endpoint = 2_000, 20, 5, 7
	d := open(t, loader.Settings{Connections: 2 * all})
	d.stopGrowth()
	dptest.Fill(t, d.shared, all, dptest.Jiffies(t))
	assignEndpoint(t, d, endpoint, few, all)
	d.sockets = ownSockets{endpoint: sockets}
	if err := d.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	walked := func(active uint64) uint64 {
		t.Helper()
		if _, err := d.walk(t.Context(), []tables.DueEndpoint{{ID: endpoint, Tracked: active}}); err != nil {
			t.Fatal(err)
		}
		var met uint64
		if err := d.programs.walkMet.Get(&met); err != nil {
			t.Fatal(err)
		}
		return met
	}
	if met := walked(sockets); met != 0 {
		t.Errorf("%d connections were met, for sockets alone", met)
	}
	if met := walked(few + sockets); met != few {
		t.Errorf("%d connections were met, want %d", met, few)
	}
}

// BenchmarkEnds finds 10 connections of an endpoint among a million: by a walk of the kernel
// through all, by reading the table, and at the locations that a sweep has recorded.
func BenchmarkEnds(b *testing.B) {
	const all, few, endpoint = 1_000_000, 10, 7
	d := open(b, loader.Settings{Connections: all})
	dptest.Fill(b, d.shared, all, dptest.Jiffies(b))
	assignEndpoint(b, d, endpoint, few, all)
	walk := func() error {
		found, err := d.walk(b.Context(), []tables.DueEndpoint{{ID: endpoint, Tracked: few}})
		if err == nil && len(found[endpoint]) != few {
			err = fmt.Errorf("%d of %d found", len(found[endpoint]), few)
		}
		return err
	}
	for _, tc := range []struct {
		name string
		find func() error
	}{
		{"everywhere", walk}, // no sweep has recorded locations
		{"read", func() error {
			_, err := d.EndConnections(b.Context(), 0, 1, func(*report.Connection) bool { return false })
			return err
		}},
		{"none", func() error {
			_, err := d.findDue(b.Context(), true)
			return err
		}},
		{"sweep", func() error { return d.sweep(b.Context()) }},
		{"known", walk},
	} {
		b.Run(tc.name, func(b *testing.B) {
			var cpu time.Duration
			for b.Loop() {
				start := processTime()
				if err := tc.find(); err != nil {
					b.Fatal(err)
				}
				cpu += processTime() - start
			}
			b.ReportMetric(float64(cpu.Microseconds())/1000/float64(b.N), "cpu-ms/op")
		})
	}
}

// processTime returns the CPU time of the process.
func processTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

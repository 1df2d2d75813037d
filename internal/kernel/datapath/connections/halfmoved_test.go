package connections

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
	"loxilb/test/dptest"
	"loxilb/test/dptest/programs"
)

// TestHalfMoved checks a process that dies in the middle of moving a group because it did not get
// the lock of a bucket, for each bucket. Without a process, all flows are found, end, and open
// again. The next process finishes the move.
func TestHalfMoved(t *testing.T) {
	t.Parallel()
	const flows = 3000
	for bucket := range bpf.TcTableLayoutBUCKETS_PER_GROUP {
		t.Run(fmt.Sprint(bucket), func(t *testing.T) {
			t.Parallel()
			d := open(t, loader.Settings{Connections: 60_000})
			d.die() // only the test grows the table
			send := d.newFlows(t)
			sendAll := func() { sendFlows(t, send, flows) }
			sendAll()
			d.halfMove(t, int(bucket))
			sendAll()
			wantFlows(t, d, flows, flows)
			if err := programs.New(d.shared, nil).Age(time.Hour); err != nil {
				t.Fatal(err)
			}
			sendAll()
			wantFlows(t, d, 2*flows, flows)
			if err := programs.New(d.shared, nil).Age(time.Hour); err != nil {
				t.Fatal(err)
			}
			if err := d.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantFlows(t, d, 2*flows, 0)
			sendAll()
			if err := d.grow(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			sendAll()
			wantFlows(t, d, 3*flows, flows)
			if _, growing, err := d.shared.Conntrack.GroupsFor(0); err != nil || growing {
				t.Errorf("the table grows still, %v", err)
			}
		})
	}
}

// TestMoveGivenUp checks that a group whose move was abandoned keeps all of its flows, that none of
// them opens again or loses a packet, and that the move is finished later.
func TestMoveGivenUp(t *testing.T) {
	t.Parallel()
	const flows = 3000
	for name, obstruct := range map[string]func(d *Table, on bool, group int) error{
		"no lock": func(d *Table, on bool, group int) error { return d.holdBucket(on, group, 3) },
		"no room": func(d *Table, on bool, _ int) error { return dptest.FillGroups(d.shared.Conntrack, on, 0) }, // at either home
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, loader.Settings{Connections: 60_000})
			d.die()
			send := d.newFlows(t)
			sendAll := func() {
				t.Helper()
				sendFlows(t, send, flows)
				wantFlows(t, d, flows, flows)
				wantNoneEnded(t, d)
			}
			sendAll()
			d.giveUpMove(t, func(on bool, group int) error { return obstruct(d, on, group) })
			sendAll()
			if err := d.grow(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			sendAll()
			if _, growing, err := d.shared.Conntrack.GroupsFor(0); err != nil || growing {
				t.Errorf("the table still grows, %v", err)
			}
		})
	}
}

// TestMoveToOtherHome checks that the table grows although a new group has no room: among a million
// connections, some group is full, and its connections may all last for days. Its entries go to
// their other home, where packets, new connections and the sweep find them.
func TestMoveToOtherHome(t *testing.T) {
	t.Parallel()
	const flows = 3000
	d := open(t, loader.Settings{Connections: 60_000})
	d.die()
	send := d.newFlows(t)
	sendFlows(t, send, flows)
	before := d.placements(t)
	d.growByFullGroup(t)
	if now := d.placements(t); maps.Equal(now, before) {
		t.Errorf("entries are placed as before, %v: none had to move to the full group", now)
	}
	sendFlows(t, send, flows)
	wantFlows(t, d, flows, flows)
	wantNoneEnded(t, d)
	if err := programs.New(d.shared, nil).Age(time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := d.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantFlows(t, d, flows, 0)
	sendFlows(t, send, flows)
	wantFlows(t, d, 2*flows, flows)
}

// TestEndMovedBack checks that kill ct ends all connections although the table grows meanwhile, and
// entries whose new group is full move to groups that kill ct has passed.
func TestEndMovedBack(t *testing.T) {
	t.Parallel()
	const flows = 3000
	d := open(t, loader.Settings{Connections: 60_000})
	d.die()
	sendFlows(t, d.newFlows(t), flows)
	before := d.movedBack(t)
	seen := 0
	done, err := d.EndConnections(t.Context(), 0, lb.MaxEndRate, func(*report.Connection) bool {
		if seen++; seen == flows*95/100 { // the last groups are left, whose entries move to the new one
			d.growByFullGroup(t)
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	if d.movedBack(t) == before {
		t.Error("no entry has moved back")
	}
	if left := len(dptest.Connections(t, d.shared)); done.Silent != flows || left != 0 {
		t.Errorf("%d of %d connections ended, %d entries are left", done.Silent, flows, left)
	}
}

// growByFullGroup grows the table by a group that has no room.
func (t *Table) growByFullGroup(tb testing.TB) {
	tb.Helper()
	full, _, err := t.shared.Conntrack.GroupsFor(0)
	if err != nil {
		tb.Fatal(err)
	}
	goal := full + 1
	if err := errors.Join(t.shared.Conntrack.Extend(goal), dptest.FillGroups(t.shared.Conntrack, true, int(full))); err != nil {
		tb.Fatal(err)
	}
	for range goal + 1 { // each moves a group at least, and the first one reports the growth
		if _, err := t.runMarked(growTable, goal); err != nil {
			tb.Fatal(err)
		}
	}
	// an entry in a hundred has both homes in that group, and waits for room
	if err := errors.Join(dptest.FillGroups(t.shared.Conntrack, false, int(full)), t.grow(tb.Context(), 0)); err != nil {
		tb.Fatal(err)
	}
}

// movedBack returns how many entries growth has moved to earlier groups.
func (t *Table) movedBack(tb testing.TB) uint64 {
	tb.Helper()
	var state bpf.TcTableState
	if err := t.shared.Maps.TableStates.Lookup(uint32(0), &state); err != nil {
		tb.Fatal(err)
	}
	return state.MovedBack
}

// placements counts the entries by placement.
func (t *Table) placements(tb testing.TB) map[bpf.TcPlacement]int {
	tb.Helper()
	n := map[bpf.TcPlacement]int{}
	if err := dptest.EachPlaced(t.shared.Conntrack, func(p bpf.TcPlacement) { n[p]++ }); err != nil {
		tb.Fatal(err)
	}
	return n
}

// die stops the process's own work on the table.
func (t *Table) die() {
	t.stopGrowth()
}

// halfMove grows the table by a group, and stops in the middle because the lock of this bucket is
// held.
func (t *Table) halfMove(tb testing.TB, bucket int) {
	tb.Helper()
	t.giveUpMove(tb, func(on bool, group int) error { return t.holdBucket(on, group, bucket) })
}

// holdBucket takes or releases the lock of a bucket.
func (t *Table) holdBucket(on bool, group, bucket int) error {
	return dptest.HoldBuckets(t.shared.Conntrack, on, func(g, b int, _ []bpf.TcConnectionKey) bool { return g == group && b == bucket })
}

// giveUpMove grows the table by a group while obstruct obstructs it.
func (t *Table) giveUpMove(tb testing.TB, obstruct func(on bool, group int) error) {
	tb.Helper()
	goal, _, err := t.shared.Conntrack.GroupsFor(0)
	if err != nil {
		tb.Fatal(err)
	}
	if err := t.shared.Conntrack.Extend(goal + 1); err != nil {
		tb.Fatal(err)
	}
	if err := obstruct(true, int(goal)); err != nil {
		tb.Fatal(err)
	}
	for range 2 { // the first one reports the growth
		if _, err := t.runMarked(growTable, goal+1); err != nil {
			tb.Fatal(err)
		}
	}
	if err := obstruct(false, int(goal)); err != nil {
		tb.Fatal(err)
	}
	if _, growing, err := t.shared.Conntrack.GroupsFor(0); err != nil || !growing {
		tb.Fatalf("the move was not given up, %v", err)
	}
}

// wantNoneEnded checks that no entry is marked as ended, like the old copy of a moved entry:
// packets that change the state of such an entry are dropped.
func wantNoneEnded(t *testing.T, d *Table) {
	t.Helper()
	for key, row := range dptest.Connections(t, d.shared) {
		if row.Traits&uint8(bpf.TcConnectionTraitCONN_ENDED) != 0 {
			t.Fatalf("%v is marked as ended", key)
		}
	}
}

// wantFlows compares the numbers of flows that were opened, are active, and are in the table.
func wantFlows(t *testing.T, d *Table, opened, active uint64) {
	t.Helper()
	var state bpf.TcEndpointState
	if err := d.shared.EndpointStates.Lookup(uint32(0), &state); err != nil {
		t.Fatal(err)
	}
	entries, err := d.shared.Conntrack.Len()
	if err != nil {
		t.Fatal(err)
	}
	n := uint64(len(dptest.Connections(t, d.shared)))
	if state.Connections != opened || state.Tracked != active || entries != 2*active || n != 2*active {
		t.Fatalf("%d flows were opened, %d are active; %d entries, counted as %d; want %d and %d", state.Connections, state.Tracked, n, entries, opened, active)
	}
	if n := dropped(t, d.shared, bpf.TcDropReasonDROP_CONNECTION_RACE); n > 0 {
		t.Fatalf("%d packets were dropped: connection-race", n)
	}
}

package tables

import (
	"testing"
	"time"

	"loxilb/internal/host/monotime"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/lb"
	"loxilb/test/dptest"
)

// wantDue checks how many endpoints have connections that end now, at which pace, and whether
// others follow.
func wantDue(t *testing.T, d *testTables, n, rate int, more bool) {
	t.Helper()
	due, next, err := d.DueEndpoints()
	if err != nil {
		t.Fatal(err)
	}
	if len(due) != n || more != !next.IsZero() {
		t.Fatalf("%+v end now, the next at %v; want %d, others %t", due, next, n, more)
	}
	for _, e := range due {
		if e.Rate != rate {
			t.Errorf("%d a second end at %v, want %d", e.Rate, e.Addr, rate)
		}
	}
}

// TestEnds checks that connections of a removed endpoint end at the service's time, also over a
// restart, unless it returns, and that those of a deleted service end at once.
func TestEnds(t *testing.T) {
	d, err := open(loader.Settings{Connections: 1024, PinDir: dptest.PinDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { d.Close() }()
	leave := func(l bpf.EndMode, endpoints int) {
		t.Helper()
		table := table(1, endpoints)
		table.Key.Protocol, table.Leave = uint8(lb.TCP), l
		apply(t, d, Change{Key: table.Key, Table: table})
	}
	leave(bpf.EndMode{}, 3)
	for id := range uint32(3) {
		setActive(t, d, id, 1)
	}
	leave(bpf.EndMode{}, 2)
	wantDue(t, d, 0, 0, false)
	leave(bpf.EndMode{Ends: true, After: time.Hour}, 1)
	wantDue(t, d, 0, 0, true)
	d = reload(t, d)
	wantDue(t, d, 0, 0, true)
	skip(d, time.Hour)
	wantDue(t, d, 1, leaveRate, false)
	leave(bpf.EndMode{Ends: true, After: time.Hour}, 2)
	wantDue(t, d, 0, 0, false)
	d = reload(t, d)
	wantDue(t, d, 0, 0, false)
	leave(bpf.EndMode{Ends: true}, 1)
	wantDue(t, d, 1, leaveRate, false)
	apply(t, d, Change{Key: table(1, 1).Key})
	wantDue(t, d, 3, deleteRate, false)
	d = reload(t, d)
	wantDue(t, d, 3, deleteRate, false)
	for id := range uint32(3) {
		setActive(t, d, id, 0)
	}
	sweep(t, d)
	wantDue(t, d, 0, 0, false)
	if len(d.deadlines) > 0 || len(d.endTimes.has) > 0 {
		t.Errorf("%v and %v are left", d.deadlines, d.endTimes.has)
	}
}

// TestEndsOfReused checks that a stored time does not apply to another endpoint that reuses the id,
// as can happen after an older process that does not know these times.
func TestEndsOfReused(t *testing.T) {
	d, err := open(loader.Settings{Connections: 1024, PinDir: dptest.PinDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { d.Close() }()
	put := func(l bpf.EndMode, port uint16) {
		t.Helper()
		table := table(1, 1)
		table.Key.Protocol, table.Leave, table.Endpoints[0].Port = uint8(lb.TCP), l, bpf.Port(port)
		apply(t, d, Change{Key: table.Key, Table: table})
	}
	put(bpf.EndMode{}, 80)
	setActive(t, d, 0, 1)
	put(bpf.EndMode{Ends: true}, 81)
	wantDue(t, d, 1, leaveRate, false)
	var row endTime
	if err := d.endTimes.m.Lookup(uint32(0), &row); err != nil {
		t.Fatal(err)
	}
	setActive(t, d, 0, 0)
	sweep(t, d)
	skip(d, time.Hour)
	put(bpf.EndMode{}, 82)
	put(bpf.EndMode{}, 83)
	if e := d.endpoint(0); e == nil {
		t.Fatal("the id is not used again")
	}
	setActive(t, d, 0, 1)
	if err := d.endTimes.m.Put(uint32(0), row); err != nil {
		t.Fatal(err)
	}
	d = reload(t, d)
	wantDue(t, d, 0, 0, false)
	if len(d.endTimes.has) > 0 {
		t.Error("the row is still there")
	}
}

// TestEndsOfFlows checks that flows other than TCP end at once.
func TestEndsOfFlows(t *testing.T) {
	d := load(t)
	put := func(endpoints int) {
		table := table(1, endpoints)
		table.Key.Protocol = uint8(lb.UDP)
		apply(t, d, Change{Key: table.Key, Table: table})
	}
	put(2)
	setActive(t, d, 1, 1)
	put(1)
	wantDue(t, d, 1, 0, false)
}

// TestEndTimes checks that times are stored by the monotonic clock, and that none is accepted that
// is later than a service can set.
func TestEndTimes(t *testing.T) {
	t.Parallel()
	for at, want := range map[time.Duration]time.Duration{
		monotime.Uptime() + time.Hour: time.Hour, monotime.Uptime() - time.Hour: -time.Hour, time.Duration(time.Now().UnixNano()): lb.MaxDrainTime,
	} {
		if got := time.Until(endTime{At: int64(at)}.deadline().At); (got - want).Abs() > time.Minute {
			t.Errorf("%v became %v from now, want %v", at, got, want)
		}
	}
}

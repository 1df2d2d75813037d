package tables

import (
	"net/netip"
	"testing"
	"time"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/lb"
	"loxilb/test/dptest"
)

// put applies the table of service number 1 over TCP after a change by f.
func (w *testTables) put(t *testing.T, endpoints int, f func(*bpf.ServiceTable)) {
	t.Helper()
	table := table(1, endpoints)
	table.Key.Protocol = uint8(lb.TCP)
	f(table)
	apply(t, w, Change{Key: table.Key, Table: table})
}

// drainsOf returns drains of an address of table(), and of one of its ports.
func drainsOf(after time.Duration, w *testTables, port uint16) lb.Drain {
	at := w.endpoint(1).at()
	d := lb.Drain{Addr: at.Addr(), Rate: 100 + int(port), Deadline: w.now().Add(after)}
	if port > 0 {
		d.Port = at.Port()
	}
	return d
}

// TestDrains checks that the deadline of a drain applies to the endpoint's connections in its
// service, and to those of a service that it left, before the drain or later, also over a restart,
// until the drain is deleted. Of two drains the earlier deadline applies.
func TestDrains(t *testing.T) {
	d, err := open(loader.Settings{Connections: 1024, PinDir: dptest.PinDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { d.Close() }()
	idle := func(b *bpf.ServiceTable) { b.Endpoints[len(b.Endpoints)-1].CurrentWeight = 0 }
	d.put(t, 2, func(b *bpf.ServiceTable) { b.Endpoints[1].CurrentWeight = 1 })
	setActive(t, d, 1, 1)
	later, sooner := drainsOf(2*time.Hour, d, 0), drainsOf(time.Hour, d, 1)
	both := []lb.Drain{later, sooner}
	d.SetDrains(both)
	wantDue(t, d, 0, 0, false) // still gets new connections
	d.put(t, 2, idle)
	wantDue(t, d, 0, 0, true)
	d.SetDrains(nil)
	wantDue(t, d, 0, 0, false)
	d.SetDrains(both)
	d.put(t, 2, idle)
	d.put(t, 1, idle) // left
	wantDue(t, d, 0, 0, true)
	d.SetDrains(nil)
	wantDue(t, d, 0, 0, false)
	d.SetDrains(both)
	wantDue(t, d, 0, 0, true)
	d = reload(t, d)
	d.SetDrains(both)
	skip(d, time.Hour)
	wantDue(t, d, 1, sooner.Rate, false)
	d.SetDrains(both[:1])
	wantDue(t, d, 0, 0, true)
	skip(d, time.Hour)
	wantDue(t, d, 1, later.Rate, false)
	d.SetDrains([]lb.Drain{{Addr: netip.MustParseAddr("192.0.2.99"), Rate: 1, Deadline: d.now()}})
	wantDue(t, d, 0, 0, false)
	if len(d.deadlines) > 0 || len(d.endTimes.has) > 0 {
		t.Errorf("%v and %v are left", d.deadlines, d.endTimes.has)
	}
}

// TestUndrainKeepsLeave checks that the service's setting for removed endpoints applies after its
// drain is deleted.
func TestUndrainKeepsLeave(t *testing.T) {
	d, err := open(loader.Settings{Connections: 1024, PinDir: dptest.PinDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { d.Close() }()
	leave := func(b *bpf.ServiceTable) { b.Leave = bpf.EndMode{Ends: true, After: 2 * time.Hour} }
	d.put(t, 2, leave)
	setActive(t, d, 1, 1)
	d.SetDrains([]lb.Drain{drainsOf(time.Hour, d, 0)})
	d.put(t, 1, leave)
	skip(d, time.Hour)
	wantDue(t, d, 1, 100, false)
	d = reload(t, d)
	d.SetDrains(nil)
	wantDue(t, d, 0, 0, true)
	skip(d, 2*time.Hour)
	wantDue(t, d, 1, leaveRate, false)
}

// TestDownLeaves checks that connections of an endpoint that is down and leaves its service
// continue if the service keeps them, unless they are already ending.
func TestDownLeaves(t *testing.T) {
	d := load(t)
	down := func(at time.Time) func(*bpf.ServiceTable) {
		return func(b *bpf.ServiceTable) {
			b.Endpoints[len(b.Endpoints)-1].Deadline = bpf.Deadline{At: at, Rate: 7, Why: "endpoint down"}
		}
	}
	keep := func(*bpf.ServiceTable) {}
	d.put(t, 2, down(d.now().Add(time.Hour)))
	setActive(t, d, 1, 1)
	wantDue(t, d, 0, 0, true)
	d.put(t, 1, keep)
	wantDue(t, d, 0, 0, false)
	d.put(t, 2, down(d.now()))
	wantDue(t, d, 1, 7, false)
	d.put(t, 1, keep)
	wantDue(t, d, 1, 7, false)
	d.put(t, 2, keep)
	wantDue(t, d, 0, 0, false)
}

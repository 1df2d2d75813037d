package connections

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"loxilb/internal/datapath/bpf"
	"loxilb/internal/datapath/dptest"
	"loxilb/internal/datapath/loader"
	"loxilb/internal/datapath/tables"
	"loxilb/internal/datapath/testrun"
)

// TestHalfMoved: a process dies at each step of a group's move, of which a lock was not to be had in one bucket. Without another
// process, all flows are found; they end and open again. The next process finishes the move.
func TestHalfMoved(t *testing.T) {
	t.Parallel()
	const flows = 3000
	for bucket := range bpf.TcTableLayoutBUCKETS_PER_GROUP {
		t.Run(fmt.Sprint(bucket), func(t *testing.T) {
			t.Parallel()
			d := open(t, loader.Settings{Connections: 60_000})
			d.die() // nothing lets the table grow but the test
			send := newFlows(t, d)
			for i := range flows {
				send(i)
			}
			d.halfMove(t, int(bucket))
			for i := range flows {
				send(i)
			}
			wantFlows(t, d, flows, flows)
			if err := testrun.New(d.shared, nil).Age(time.Hour); err != nil {
				t.Fatal(err)
			}
			for i := range flows {
				send(i)
			}
			wantFlows(t, d, 2*flows, flows)
			if err := testrun.New(d.shared, nil).Age(time.Hour); err != nil {
				t.Fatal(err)
			}
			if err := d.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantFlows(t, d, 2*flows, 0)
			for i := range flows {
				send(i)
			}
			if err := d.grow(t.Context(), 0); err != nil {
				t.Fatal(err)
			}
			for i := range flows {
				send(i)
			}
			wantFlows(t, d, 3*flows, flows)
			if _, growing, err := d.shared.Conntrack.Goal(0); err != nil || growing {
				t.Errorf("the table grows still, %v", err)
			}
		})
	}
}

// die ends what a process does for the table, but for what it is asked to.
func (t *Table) die() {
	t.stop()
	t.stopped.Wait()
}

// halfMove has the table grow by a group, and gives up in the middle: somebody holds the lock of this bucket there.
func (t *Table) halfMove(tb testing.TB, bucket int) {
	tb.Helper()
	goal, _, err := t.shared.Conntrack.Goal(0)
	if err != nil {
		tb.Fatal(err)
	}
	last := int(goal)
	hold := func(on bool) {
		tb.Helper()
		if err := t.shared.Conntrack.Hold(on, func(group, b int, _ []bpf.TcConnectionKey) bool { return group == last && b == bucket }); err != nil {
			tb.Fatal(err)
		}
	}
	if err := t.shared.Conntrack.Extend(goal + 1); err != nil {
		tb.Fatal(err)
	}
	hold(true)
	for range 2 { // the first one says that it grows
		if _, err := runMarked(t.programs.LoxilbGrow, goal+1); err != nil {
			tb.Fatal(err)
		}
	}
	hold(false)
	if _, growing, err := t.shared.Conntrack.Goal(0); err != nil || !growing {
		tb.Fatalf("the move was not given up, %v", err)
	}
}

// newFlows makes a service, and returns what sends a datagram of a flow.
func newFlows(t *testing.T, d *Table) (send func(flow int)) {
	t.Helper()
	vip := netip.MustParseAddr("10.0.0.1")
	table := bpf.ServiceTable{
		Key:       bpf.TcServiceKey{Vip: bpf.Addr(vip), Port: bpf.Port(53), Protocol: 17},
		Endpoints: []bpf.EndpointTable{{Addr: bpf.Addr(netip.MustParseAddr("10.1.0.1")), Port: bpf.Port(53)}},
		Slots:     []uint32{0},
	}
	if err := d.tables.Apply([]tables.Change{{Key: table.Key, Table: &table}})[0]; err != nil {
		t.Fatal(err)
	}
	program := d.program(t)
	return func(flow int) {
		t.Helper()
		client := netip.AddrFrom4([4]byte{10, 8, byte(flow >> 14), 1})
		frame := dptest.UDPFrame(client, vip, uint16(1000+flow&0x3fff), 53)
		if _, err := program.Run(&ebpf.RunOptions{Data: frame}); err != nil {
			t.Fatal(err)
		}
	}
}

// wantFlows compares how many flows were opened, are active and are in the table.
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
	if state.Connections != opened || state.Active != active || entries != 2*active || n != 2*active {
		t.Fatalf("%d flows were opened, %d are active; %d entries, counted as %d; want %d and %d", state.Connections, state.Active, n, entries, opened, active)
	}
	if n := dropped(t, d.shared, bpf.TcDropReasonDROP_CONNECTION_RACE); n > 0 {
		t.Fatalf("%d packets were dropped: connection-race", n)
	}
}

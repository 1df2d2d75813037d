package connections

import (
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/test/dptest"
	"loxilb/test/dptest/programs"
)

// TestOnePort checks that one port of a client can have hundreds of connections, although all have
// their first home in one group, and that the table keeps them as it grows. Other clients find room
// next to them.
func TestOnePort(t *testing.T) {
	t.Parallel()
	const flows, others = 400, 1000
	d := open(t, loader.Settings{Connections: 60_000})
	d.die()
	sendOther := d.newFlows(t)
	send := d.flowsOfPort(t, flows)
	sendAll := func(want uint64) {
		t.Helper()
		for i := range flows {
			if err := send(i); err != nil {
				t.Fatal(err)
			}
		}
		for i := range others {
			if err := sendOther(i); err != nil {
				t.Fatal(err)
			}
		}
		wantEntries(t, d, want)
	}
	sendAll(2 * (flows + others))
	if n := buckets(t, d, 1<<bpf.TcTableLayoutAWAY_BIT); n == 0 {
		t.Error("all connections found room at their client's home")
	}
	sendAll(2 * (flows + others))
	if err := d.grow(t.Context(), 50_000); err != nil {
		t.Fatal(err)
	}
	for range 3 { // sweeps forget no entry that is at its second home
		sendAll(2 * (flows + others))
		sweep(t, d)
	}
	for range 2 {
		sendAll(2 * (flows + others))
		if err := programs.New(d.shared, nil).Age(time.Hour); err != nil {
			t.Fatal(err)
		}
		sweep(t, d)
		wantEntries(t, d, 0)
	}
	sweep(t, d)
	sweep(t, d)
	if n := buckets(t, d, 1<<bpf.TcTableLayoutAWAY_BIT); n != 0 {
		t.Errorf("%d buckets of an empty table still send keys to their second home", n)
	}
}

// TestPairs checks that both entries of a connection are adjacent if its ports show which side is
// the client, and that a second connection to the same endpoint from the same port is opened
// without such a pair.
func TestPairs(t *testing.T) {
	t.Parallel()
	const flows = 300
	d := open(t, loader.Settings{Connections: 60_000})
	d.die()
	send := d.newFlows(t)
	for i := range flows {
		if err := send(2*i + 1); err != nil {
			t.Fatal(err)
		}
	}
	wantEntries(t, d, 2*flows)
	if n := pairs(t, d); n < flows*9/10 {
		t.Errorf("%d of %d connections have a pair of rows", n, flows)
	}
	other := netip.MustParseAddr("10.0.0.2")
	d.serve(t, 17, netip.AddrPortFrom(other, 53), netip.MustParseAddr("10.1.0.1"))
	client := netip.AddrFrom4([4]byte{10, 8, 0, 1})
	if _, err := d.program(t).Run(&ebpf.RunOptions{Data: dptest.UDPFrame(client, other, 1<<15+1001, 53)}); err != nil {
		t.Fatal(err)
	}
	wantEntries(t, d, 2*flows+2)
}

// pairs returns how many connections have both entries in a pair of rows.
func pairs(t *testing.T, d *Table) (n int) {
	t.Helper()
	err := d.shared.Conntrack.EditBuckets(func(_, _ int, b *bpf.TcTableBucket) bool {
		for i := range b.Rows {
			client, reply := &b.Rows[i], &b.Rows[i^1].Connection
			live := client.Status>>bpf.TcTableLayoutROW_LIVE_BIT != 0
			if live && reply.Flags != 0 && reply.Daddr == client.Key.Saddr && reply.Dport == client.Key.Sport {
				n++
			}
		}
		return false
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func sweep(t *testing.T, d *Table) {
	t.Helper()
	if err := d.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// flowsOfPort creates services, and returns a function that sends one of them a datagram, always
// from the same port.
func (t *Table) flowsOfPort(tb testing.TB, services int) (send func(service int) error) {
	tb.Helper()
	address := func(net byte, n int) netip.Addr { return netip.AddrFrom4([4]byte{10, net, byte(n >> 8), byte(n)}) }
	for i := range services {
		t.serve(tb, 17, netip.AddrPortFrom(address(20, i), 53), address(21, i))
	}
	program, client := t.program(tb), netip.MustParseAddr("10.8.0.2")
	return func(service int) error {
		_, err := program.Run(&ebpf.RunOptions{Data: dptest.UDPFrame(client, address(20, service), 40_000, 53)})
		return err
	}
}

// wantEntries checks how many entries the table has and counts, and that none was refused.
func wantEntries(t *testing.T, d *Table, want uint64) {
	t.Helper()
	entries, err := d.shared.Conntrack.Len()
	if err != nil {
		t.Fatal(err)
	}
	if n := uint64(len(dptest.Connections(t, d.shared))); n != want || entries != want {
		t.Fatalf("%d entries, counted as %d, want %d", n, entries, want)
	}
	for _, reason := range []bpf.TcDropReason{bpf.TcDropReasonDROP_CONNECTION_RACE, bpf.TcDropReasonDROP_CONNTRACK_FULL} {
		if n := dropped(t, d.shared, reason); n > 0 {
			t.Fatalf("%d packets were dropped for reason %d", n, reason)
		}
	}
}

// buckets returns the number of buckets that have any of these bits in the last word of their tags.
func buckets(t *testing.T, d *Table, bits uint64) (n int) {
	t.Helper()
	err := d.shared.Conntrack.EditBuckets(func(_, _ int, b *bpf.TcTableBucket) bool {
		if b.Tags[len(b.Tags)-1]&bits != 0 {
			n++
		}
		return false
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestFormerTable checks that a table of a former version, without second homes, keeps its flows,
// opens new ones and grows.
func TestFormerTable(t *testing.T) {
	t.Parallel()
	const flows = 3000
	d := open(t, loader.Settings{Connections: 60_000})
	d.die()
	if err := dptest.MakeFormerLayout(d.shared.Maps.TableStates); err != nil {
		t.Fatal(err)
	}
	send := d.newFlows(t)
	sendAll := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			if err := send(i); err != nil {
				t.Fatal(err)
			}
		}
		wantFlows(t, d, uint64(to), uint64(to))
	}
	sendAll(0, flows)
	sendAll(0, flows)
	if err := d.grow(t.Context(), 50_000); err != nil {
		t.Fatal(err)
	}
	sendAll(0, flows)
	sendAll(flows, 2*flows)
	err := dptest.EachPlaced(d.shared.Conntrack, func(placed bpf.TcPlacement) {
		if placed != bpf.TcPlacementBY_TUPLE {
			t.Fatalf("an entry has another placement, %d", placed)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := programs.New(d.shared, nil).Age(time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := d.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantFlows(t, d, 2*flows, 0)
}

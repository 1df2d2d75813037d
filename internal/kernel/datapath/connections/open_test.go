package connections

import (
	"net"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/observe"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/kernel/datapath/tables"
	"loxilb/test/dptest"
)

// open opens a Table with the programs of sweeps.
func open(t testing.TB, s loader.Settings) *Table {
	t.Helper()
	table, end := openOnce(t, s)
	t.Cleanup(end)
	return table
}

// openOnce is open for a process that ends before the test does.
func openOnce(t testing.TB, s loader.Settings) (table *Table, end func()) {
	t.Helper()
	c, err := loader.Open(s)
	if err != nil {
		t.Fatal(err)
	}
	services, err := tables.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := rows.Grow(1, c.Endpoints, c.EndpointStates.Shared, c.EndpointStates.PerCPU, c.EndpointTraffics); err != nil {
		t.Fatal(err)
	}
	programs, err := LoadSweep(c)
	if err != nil {
		t.Fatal(err)
	}
	table = New(c, services, observe.NewMeter(c), programs, noHooks{}, ownSockets{})
	return table, func() {
		if err := table.Close(); err != nil {
			t.Error(err)
		}
		services.Close()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// stopGrowth stops the automatic growth of the table: rows that move must not be written by the
// test, and would be listed twice.
func (t *Table) stopGrowth() {
	t.stop()
	t.stopped.Wait()
}

// program returns the program at the tc hook.
func (t *Table) program(tb testing.TB) *ebpf.Program {
	tb.Helper()
	p, err := t.shared.Program(false, false)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// noHooks has no interfaces.
type noHooks struct{}

func (noHooks) Any() bool                                 { return false }
func (noHooks) Arrival(int) (int, net.HardwareAddr, bool) { return 0, nil, false }

// ownSockets holds the number of flows of this machine's own sockets, by endpoint id.
type ownSockets map[uint32]uint64

func (s ownSockets) Flows() (map[uint32]uint64, error) { return s, nil }

// serve creates a service with these endpoints, all at its port.
func (t *Table) serve(tb testing.TB, protocol uint8, vip netip.AddrPort, endpoints ...netip.Addr) {
	tb.Helper()
	table := bpf.ServiceTable{Key: bpf.TcServiceKey{Vip: bpf.Addr(vip.Addr()), Port: bpf.Port(vip.Port()), Protocol: protocol}}
	for i, a := range endpoints {
		table.Endpoints = append(table.Endpoints, bpf.EndpointTable{Addr: bpf.Addr(a), Port: bpf.Port(vip.Port())})
		table.Slots = append(table.Slots, uint32(i))
	}
	if err := t.tables.Apply([]tables.Change{{Key: table.Key, Table: &table}})[0]; err != nil {
		tb.Fatal(err)
	}
}

// newFlows creates a service, and returns a function that sends it a datagram of a flow. The ports
// of every other one show that it comes from a client.
func (t *Table) newFlows(tb testing.TB) (send func(flow int) error) {
	tb.Helper()
	vip := netip.MustParseAddr("10.0.0.1")
	t.serve(tb, 17, netip.AddrPortFrom(vip, 53), netip.MustParseAddr("10.1.0.1"))
	program := t.program(tb)
	return func(flow int) error {
		client := netip.AddrFrom4([4]byte{10, 8, byte(flow >> 14), 1})
		_, err := program.Run(&ebpf.RunOptions{Data: dptest.UDPFrame(client, vip, uint16(1000+flow&0x3fff|flow&1<<15), 53)})
		return err
	}
}

// sendFlows sends a datagram of each of the first n flows.
func sendFlows(tb testing.TB, send func(flow int) error, n int) {
	tb.Helper()
	for i := range n {
		if err := send(i); err != nil {
			tb.Fatal(err)
		}
	}
}

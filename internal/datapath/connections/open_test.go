package connections

import (
	"net"
	"testing"

	"github.com/cilium/ebpf"

	"loxilb/internal/datapath/loader"
	"loxilb/internal/datapath/pressure"
	"loxilb/internal/datapath/rows"
	"loxilb/internal/datapath/tables"
)

// open loads what a sweep needs.
func open(t testing.TB, s loader.Settings) *Table {
	t.Helper()
	c, err := loader.Open(s)
	if err != nil {
		t.Fatal(err)
	}
	services, err := tables.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := rows.Grow(1, c.Endpoints, c.EndpointStates, c.EndpointTraffics); err != nil {
		t.Fatal(err)
	}
	programs, err := LoadSweep(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	table := New(c, services, pressure.New(c), programs, noHooks{})
	t.Cleanup(func() {
		if err := table.Close(); err != nil {
			t.Error(err)
		}
		services.Close()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return table
}

// program is the one at the tc hook.
func (t *Table) program(tb testing.TB) *ebpf.Program {
	tb.Helper()
	p, err := t.shared.Program(false, false)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// noHooks are no interfaces.
type noHooks struct{}

func (noHooks) Any() bool                                 { return false }
func (noHooks) Arrival(int) (int, net.HardwareAddr, bool) { return 0, nil, false }

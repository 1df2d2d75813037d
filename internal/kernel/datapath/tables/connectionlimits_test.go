package tables

import (
	"net/netip"
	"testing"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/test/dptest"
)

// TestLimitsOfNext checks that a service that reuses the number of a deleted one has neither its
// limits nor the counts of its clients.
func TestLimitsOfNext(t *testing.T) {
	w := load(t)
	key := bpf.TcServiceKey{Vip: bpf.Addr(netip.MustParseAddr("20.0.0.1")), Port: bpf.Port(uint16(80)), Protocol: 6}
	limited := bpf.ServiceTable{
		Key: key, Limits: bpf.Limits{ClientConnections: 2, ClientPrefix: 128}, Flags: uint16(bpf.TcServiceFlagSERVICE_LIMITED),
	}
	limits := func() (row bpf.TcServiceLimits) {
		t.Helper()
		if err := w.arrays.ServiceLimits.Table().Lookup(w.services[key].id, &row); err != nil {
			t.Fatal(err)
		}
		return row
	}
	apply(t, w, Change{Key: key, Table: &limited})
	id, first := w.services[key].id, limits()
	if first.ClientConnections != 2 {
		t.Fatalf("the limits are %+v; want 2 connections of a client", first)
	}
	apply(t, w, Change{Key: key})
	sweep(t, w)
	skip(w, rows.Quarantine)
	apply(t, w, Change{Key: key, Table: &bpf.ServiceTable{Key: key}})
	if next := w.services[key].id; next != id {
		t.Fatalf("the next service has number %d; want that of the first, %d", next, id)
	}
	if got := limits().ClientConnections; got != 0 {
		t.Errorf("a client of the next service, which has no limits, may have %d connections", got)
	}
	apply(t, w, Change{Key: key, Table: &limited})
	if got := limits(); got.ClientConnections != 2 || got.Generation == first.Generation {
		t.Errorf("the next service's limits are %+v; want another generation than %d", got, first.Generation)
	}
}

// TestLimitsAfterKill checks that limits that a killed process left after removing the service, and
// their counts, do not apply to the next service.
func TestLimitsAfterKill(t *testing.T) {
	w, err := open(loader.Settings{Connections: 1024, PinDir: dptest.PinDir(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { w.Close() }()
	limited := func(n int) Change {
		c := Change{Key: serviceKey(n), Table: table(n, 1)}
		c.Table.Limits, c.Table.Flags = bpf.Limits{ClientConnections: 2, ClientPrefix: 128}, serviceLimited
		return c
	}
	rows := func() (rows [2]bpf.TcServiceLimits) {
		t.Helper()
		for id := range rows {
			if err := w.arrays.ServiceLimits.Table().Lookup(uint32(id), &rows[id]); err != nil {
				t.Fatal(err)
			}
		}
		return rows
	}
	apply(t, w, limited(1), limited(2))
	before := rows()
	if err := w.maps.Services.Delete(serviceKey(1)); err != nil {
		t.Fatal(err)
	}
	w = reload(t, w)
	after := rows()
	if got := after[0]; got != (bpf.TcServiceLimits{Generation: got.Generation}) || got.Generation == before[0].Generation {
		t.Errorf("the limits of the service that is gone are %+v; before %+v", got, before[0])
	}
	if after[1] != before[1] {
		t.Errorf("the limits of the other are %+v; before %+v", after[1], before[1])
	}
}

package tables

import (
	"net/netip"
	"testing"

	"loxilb/internal/datapath/bpf"
	"loxilb/internal/datapath/tables/alloc"
)

// TestLimitsOfNext: a service that gets the number of one that is gone has neither its limits nor the counts of its clients.
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
	skip(w, alloc.Quarantine)
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

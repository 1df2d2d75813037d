package tables

import (
	"maps"
	"net/netip"
	"testing"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
)

// TestSetLocalAddresses checks that a failed write is retried by the same call, and that endpoints
// on this machine are recognized by the written addresses.
func TestSetLocalAddresses(t *testing.T) {
	t.Parallel()
	d := load(t)
	address := func(last byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, last}) }
	set := func(list ...netip.Addr) error { t.Helper(); return d.SetLocalAddresses(list) }
	want := func(list ...netip.Addr) {
		t.Helper()
		have := map[netip.Addr]bool{}
		err := rows.Each(d.maps.LocalAddresses, func(k bpf.TcIpAddr, _ uint8) { have[k.Netip()] = true })
		if err != nil {
			t.Fatal(err)
		}
		all := map[netip.Addr]bool{}
		for _, a := range list {
			all[a] = true
		}
		if !maps.Equal(have, all) {
			t.Errorf("the addresses are %v, want %v", have, list)
		}
	}
	apply(t, d, named(2))
	if err := set(address(1)); err != nil {
		t.Fatal(err)
	}
	if d.HasLocalEndpoints() || !d.HasLocalEndpoints(named(1)) || d.HasLocalEndpoints(Change{Key: serviceKey(1)}) {
		t.Error("endpoints on this machine are not recognized")
	}
	back := fillUp(t, &d.maps.LocalAddresses)
	if err := set(address(1), address(2)); err == nil {
		t.Error("a failure is not reported")
	}
	if d.HasLocalEndpoints() {
		t.Error("an endpoint is on this machine by an address that was not written")
	}
	want(address(1))
	back()
	for range 2 {
		if err := set(address(1), address(2)); err != nil {
			t.Errorf("tried again: %v", err)
		}
		want(address(1), address(2))
	}
	if !d.HasLocalEndpoints() {
		t.Error("the endpoint on this machine is not recognized")
	}
	if err := set(); err != nil || d.HasLocalEndpoints() {
		t.Errorf("after its address is gone: %v, wanted %v", err, d.HasLocalEndpoints())
	}
	want()
}

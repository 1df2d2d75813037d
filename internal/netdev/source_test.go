package netdev

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSourceAddresses: each host has a source address or a reason why not.
func TestSourceAddresses(t *testing.T) {
	t.Parallel()
	a, _ := pair(t)
	run(t, a, "ip", "route", "add", "10.9.0.0/16", "via", "10.1.0.2")
	run(t, a, "ip", "route", "add", "unreachable", "10.66.0.0/16")
	n := openHost(t, a)
	hosts := ips("10.1.0.2", "10.9.0.1", "2001:db8:1::2", "10.1.0.1", "10.66.0.1", "10.250.0.1")
	found, missing, err := n.Sources().SourceAddresses(t.Context(), hosts)
	if err != nil {
		t.Fatal(err)
	}
	want := map[netip.Addr]netip.Addr{}
	for i, source := range ips("10.1.0.1", "10.1.0.1", "2001:db8:1::1") {
		want[hosts[i]] = source
	}
	if diff := cmp.Diff(want, found, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("found: -want +got\n%s", diff)
	}
	for _, host := range hosts[3:] {
		if missing[host] == nil {
			t.Errorf("no reason why %s has no source address", host)
		}
	}
	if len(missing) != 3 {
		t.Errorf("missing: %v", missing)
	}
}

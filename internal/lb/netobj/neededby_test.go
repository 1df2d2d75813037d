package netobj

import (
	"net/netip"
	"testing"

	"loxilb/internal/lb/policy"
)

// TestIsNeededBy checks which objects a session depends on: its address, the first address of that
// network, the network or route to the client, and interfaces.
func TestIsNeededBy(t *testing.T) {
	t.Parallel()
	prefix := netip.MustParsePrefix
	s := &policy.AcceptedConnection{
		Remote: netip.MustParseAddrPort("10.0.0.9:5000"), Local: netip.MustParseAddrPort("10.0.0.2:22"), Interface: "eth0", Out: "eth1", Route: prefix("10.0.0.0/24"),
	}
	seen := []DeviceAddresses{
		{"eth0", []netip.Prefix{prefix("10.0.0.1/24"), prefix("10.0.0.2/24"), prefix("10.0.0.3/24"), prefix("10.0.0.4/25")}},
		{"eth1", []netip.Prefix{prefix("10.0.0.5/24"), prefix("10.0.1.1/24")}},
	}
	for text, want := range map[string]bool{
		"10.0.0.1/24 eth0": true, // the kernel removes secondary addresses with it
		"10.0.0.2/24 eth0": true,
		"10.0.0.3/24 eth0": false,
		"10.0.0.4/25 eth0": false,
		"10.0.0.5/24 eth1": true, // removes the client's network, too
		"10.0.1.1/24 eth1": false,
	} {
		var a Address
		for _, d := range seen {
			for _, p := range d.Addresses {
				if p.String()+" "+d.Dev == text {
					a = Address{d.Dev, p}
				}
			}
		}
		if got := a.IsNeededBy(s, seen); got != want {
			t.Errorf("%s is needed: %v, want %v", text, got, want)
		}
	}
	for r, want := range map[Route]bool{
		{Destination: prefix("10.0.0.0/24")}:            true,
		{Destination: prefix("10.0.0.0/24"), Metric: 9}: false,
		{Destination: prefix("10.0.0.0/16")}:            false,
	} {
		if got := r.IsNeededBy(s); got != want {
			t.Errorf("%s is needed: %v, want %v", r, got, want)
		}
	}
	for name, want := range map[string]bool{"eth0": true, "eth1": true, "eth2": false} {
		if got := DeviceIsNeededBy(name, s); got != want {
			t.Errorf("%s is needed: %v, want %v", name, got, want)
		}
	}
	six := &policy.AcceptedConnection{Local: netip.MustParseAddrPort("[2001:db8::2]:22"), Out: "eth0", Route: prefix("2001:db8::/64")}
	both := []DeviceAddresses{{"eth0", []netip.Prefix{prefix("2001:db8::1/64"), prefix("2001:db8::2/64")}}}
	if (Address{"eth0", prefix("2001:db8::1/64")}).IsNeededBy(six, both) {
		t.Error("an IPv6 address is needed although another one of its network remains")
	}
	if !(Address{"eth0", prefix("2001:db8::1/64")}).IsNeededBy(six, nil) {
		t.Error("the last address of a network is not needed")
	}
}

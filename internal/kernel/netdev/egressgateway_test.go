package netdev

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// TestCollisions checks that no two addresses of a network share a tunnel, and that packets for the
// second of two gateways with one number lead nowhere, instead of into the first one's tunnel.
func TestCollisions(t *testing.T) {
	t.Parallel()
	numbers := map[uint32]netip.Addr{}
	a := netip.MustParseAddr("192.0.2.0")
	for range 256 {
		one := Gateway{Addr: a}
		if other, taken := numbers[one.tunnelNumber()]; taken {
			t.Errorf("%s and %s share a tunnel", other, a)
		}
		numbers[one.tunnelNumber()], a = a, a.Next()
	}
	var twin Gateway
	for a = netip.MustParseAddr("10.0.0.0"); ; a = a.Next() {
		if _, taken := numbers[Gateway{Addr: a}.tunnelNumber()]; taken {
			twin.Addr = a
			break
		}
	}
	list := withCollisions([]Gateway{{Addr: numbers[twin.tunnelNumber()]}, twin})
	if first := list[0].rules(); len(first) != 4 {
		t.Errorf("the first gateway has %d rules, want 4", len(first))
	}
	if second := list[1].rules(); len(second) != 1 || second[0].Type != unix.RTN_UNREACHABLE {
		t.Errorf("the second gateway has the rules %v, want an unreachable one", second)
	}
}

package datapath

import (
	"net/netip"
	"testing"

	"loxilb/test/dptest"
)

// TestN3EndsConnections checks that a service that changes to n3 loses the connections of base
// stations, since XDP would forward all of their tunnels by one connection. Later connections stay.
func TestN3EndsConnections(t *testing.T) {
	if !dptest.HasTCX() {
		t.Skip("n3 needs Linux 6.6")
	}
	t.Parallel()
	const service, n3 = "10.0.0.1:2152/udp endpoints=192.168.1.10:2152", "10.0.0.1:2152/udp select=n3 endpoints=192.168.1.10:2152"
	c := &twoNodes{t: t, one: newOpener(t, service)}
	addService(t, c.one, "10.0.0.1:53/udp endpoints=192.168.1.10:2152")
	open := func(port uint16, want int) {
		t.Helper()
		c.run(c.one, dptest.UDPFrame(netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("10.0.0.1"), 2152, port))
		if got := len(dptest.Connections(t, c.one.d.collection)); got != want {
			t.Errorf("%d entries, want %d", got, want)
		}
	}
	open(2152, 2)
	open(53, 4)
	for _, left := range []int{2, 4} {
		addService(t, c.one, n3)
		if got := len(dptest.Connections(t, c.one.d.collection)); got != left {
			t.Errorf("after the service became n3, %d entries are left, want %d", got, left)
		}
		open(2152, 4)
	}
}

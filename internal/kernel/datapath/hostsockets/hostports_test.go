package hostsockets

import (
	"strings"
	"testing"
)

// TestReservedPorts checks that connections do not get the ports that the kernel assigns to
// sockets: its range without the ports that users reserved.
func TestReservedPorts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		local, reserved string
		limit           uint32
		sockets, free   []uint16
	}{
		{"32768\t60999\n", "\n", 64512 - 28232 - 512, []uint16{32768, 50000, 60999}, []uint16{1024, 32767, 61000, 65535}},
		{"1024\t65535\n", "8080,20000-39999\n", 20001 - 512, []uint16{1024, 8081, 19999, 40000, 65535}, []uint16{8080, 20000, 39999}},
		{"512\t2047\n", "\n", 64512 - 1024 - 512, []uint16{512, 1024, 2047}, []uint16{2048}},
	} {
		row, err := rowOf(c.local, c.reserved)
		if err != nil || row.Limit != c.limit {
			t.Errorf("range %q without %q: connections may use %d ports, error %v; want %d", c.local, c.reserved, row.Limit, err, c.limit)
		}
		for want, ports := range map[uint64][]uint16{1: c.sockets, 0: c.free} {
			for _, port := range ports {
				if got := row.Bits[port/64] >> (port % 64) & 1; got != want {
					t.Errorf("range %q without %q: the bit of port %d is %d, want %d", c.local, c.reserved, port, got, want)
				}
			}
		}
	}
}

// TestTooFewPorts checks that connections may use every port of a machine if its sockets leave too
// few, and that this is reported. Firewall rules still know the ports of sockets.
func TestTooFewPorts(t *testing.T) {
	t.Parallel()
	row, err := rowOf("1024\t65535\n", "80,4000-5000\n")
	if err == nil || !strings.Contains(err.Error(), "leaves 1001 ports") || row.Limit != 0 {
		t.Errorf("connections may use %d ports with error %v, want no limit and an error", row.Limit, err)
	}
	for port, want := range map[uint16]uint64{80: 0, 1023: 0, 4500: 0, 1024: 1, 5001: 1, 65535: 1} {
		if got := row.Bits[port/64] >> (port % 64) & 1; got != want {
			t.Errorf("the bit of port %d is %d, want %d", port, got, want)
		}
	}
	for _, bad := range [][2]string{{"", ""}, {"1 70000", ""}, {"1 2", "x"}} {
		if _, err := rowOf(bad[0], bad[1]); err == nil {
			t.Errorf("%q is accepted as a range of ports", bad)
		}
	}
}

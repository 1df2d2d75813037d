package netdev

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// TestNeighbours checks that next hops are resolved without traffic, stay resolved after the daemon
// ends, and are released with the last endpoint that uses them.
func TestNeighbours(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	run(t, a, "ip", "route", "add", "10.9.0.0/16", "via", "10.1.0.2")
	run(t, a, "ip", "route", "add", "2001:db8:9::/48", "via", "2001:db8:1::2")
	n := openHost(t, a)
	stop := startRun(t, n, newRecorder())
	mac, err := b.MAC("eth0")
	if err != nil {
		t.Fatal(err)
	}
	shows := func(via string, ok func(string) bool) {
		t.Helper()
		eventually(t, func() error {
			if out := run(t, a, "ip", "neigh", "show", via); !ok(out) {
				return fmt.Errorf("neighbour %s: %q", via, out)
			}
			return nil
		})
	}
	isManaged := func(out string) bool { return strings.Contains(out, mac.String()) && strings.Contains(out, "managed") }
	isReleased := func(out string) bool { return !strings.Contains(out, "managed") }

	endpoints := ips("10.9.0.1", "10.9.0.2", "2001:db8:9::1", "10.250.0.1", "10.1.0.1")
	n.Neighbours().Set(slices.Values(endpoints))
	shows("10.1.0.2", isManaged)
	shows("2001:db8:1::2", isManaged)

	// The The The neighbour is restored after its link went down and up, and after it was deleted.
	run(t, a, "ip", "link", "set", "eth0", "down")
	run(t, a, "ip", "link", "set", "eth0", "up")
	run(t, a, "ip", "route", "replace", "10.9.0.0/16", "via", "10.1.0.2")
	shows("10.1.0.2", isManaged)
	run(t, a, "ip", "neigh", "del", "10.1.0.2", "dev", "eth0")
	shows("10.1.0.2", isManaged)

	// The managed neighbour changes with the route; a neighbour that others made permanent is left
	// alone.
	run(t, b, "ip", "addr", "add", "10.1.0.3/24", "dev", "eth0")
	run(t, a, "ip", "route", "replace", "10.9.0.0/16", "via", "10.1.0.3")
	shows("10.1.0.3", isManaged)
	shows("10.1.0.2", isReleased)
	run(t, a, "ip", "neigh", "replace", "10.1.0.9", "lladdr", "02:00:00:00:00:09", "dev", "eth0", "nud", "permanent")
	run(t, a, "ip", "route", "replace", "10.9.0.0/16", "via", "10.1.0.9")
	shows("10.1.0.3", isReleased)
	shows("10.1.0.9", func(out string) bool { return strings.Contains(out, "PERMANENT") && isReleased(out) })

	run(t, a, "ip", "route", "replace", "10.9.0.0/16", "via", "10.1.0.2")
	shows("10.1.0.2", isManaged)
	stop()
	shows("10.1.0.2", isManaged)
	again, _ := runHost(t, a)
	shows("10.1.0.2", isManaged)
	again.Neighbours().Set(func(func(netip.Addr) bool) {})
	shows("10.1.0.2", isReleased)
}

// TestNeighboursMany checks that tens of thousands of endpoints behind one gateway are one
// neighbour, and take little time.
func TestNeighboursMany(t *testing.T) {
	t.Parallel()
	a, _ := pair(t)
	run(t, a, "ip", "route", "add", "default", "via", "10.1.0.2")
	n, _ := runHost(t, a)
	n.Neighbours().Set(func(yield func(netip.Addr) bool) {
		for i := range 16384 {
			if !yield(netip.AddrFrom4([4]byte{30, byte(i >> 16), byte(i >> 8), byte(i)})) {
				return
			}
		}
	})
	eventually(t, func() error {
		if out := run(t, a, "ip", "neigh", "show"); strings.Count(out, "managed") != 1 {
			return fmt.Errorf("neighbours: %s", out)
		}
		return nil
	})
}

// TestNeighboursBeyondLimit checks more next hops than the kernel's default limit of 1,024
// neighbours.
func TestNeighboursBeyondLimit(t *testing.T) {
	t.Parallel()
	a, _ := pair(t)
	run(t, a, "ip", "route", "add", "10.64.0.0/16", "dev", "eth0")
	n, _ := runHost(t, a)
	const many = 2000
	n.Neighbours().Set(func(yield func(netip.Addr) bool) {
		for i := range many {
			if !yield(netip.AddrFrom4([4]byte{10, 64, byte(i >> 8), byte(i)})) {
				return
			}
		}
	})
	eventually(t, func() error {
		if got := strings.Count(run(t, a, "ip", "neigh", "show"), "managed"); got != many {
			return fmt.Errorf("%d neighbours are managed, want %d", got, many)
		}
		return nil
	})
}

package datapath

import (
	"net/netip"
	"testing"
	"time"
)

// TestCopiesAge checks that the packet path dates copies by the clock by which user space finds how
// long they have waited.
func TestCopiesAge(t *testing.T) {
	t.Parallel()
	c := newCopied(t, tcpCopies)
	began := time.Now()
	c.open(netip.MustParseAddrPort("198.51.100.1:40000"), netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("192.0.2.1:8080"))
	for _, one := range c.wait(2) {
		if most := time.Since(began) + time.Second; one.Idle < 0 || one.Idle > most {
			t.Errorf("a copy is %v old, want %v at most", one.Idle, most)
		}
	}
}

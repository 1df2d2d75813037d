package datapath

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"loxilb/internal/lb/report"
	"loxilb/test/dptest"
)

// TestCopiesAge checks that the packet path and user space use the same clock for the age of
// copies.
func TestCopiesAge(t *testing.T) {
	t.Parallel()
	c := newTwoNodes(t, tcpCopies)
	began := time.Now()
	c.open(netip.MustParseAddrPort("198.51.100.1:40000"), netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("192.0.2.1:8080"))
	for _, one := range c.wait(2) {
		if most := time.Since(began) + time.Second; one.Idle < 0 || one.Idle > most {
			t.Errorf("a copy is %v old, want %v at most", one.Idle, most)
		}
	}
}

// TestCopiesWait checks that the age of copies includes the time for which their process was
// stopped.
func TestCopiesWait(t *testing.T) {
	t.Parallel()
	const stopped = 300 * time.Millisecond
	c := &twoNodes{t: t, one: newOpener(t, tcpCopies)}
	ctx, cancel := context.WithCancel(t.Context())
	lists, release, done := make(chan []report.ConnectionCopy), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- c.one.d.WatchCopies(ctx, func(list []report.ConnectionCopy, _ uint64) {
			select {
			case lists <- append([]report.ConnectionCopy(nil), list...):
				<-release
			case <-ctx.Done():
			}
		})
	}()
	client, vip := netip.MustParseAddrPort("198.51.100.1:40000"), netip.MustParseAddrPort("10.0.0.1:80")
	c.awaitWatch()
	c.open(client, vip, netip.MustParseAddrPort("192.0.2.1:8080"))
	<-lists
	c.run(c.one, dptest.Segment(client, vip, 0x14, 1101, 5101))
	for began := time.Now(); time.Since(began) < stopped; {
		time.Sleep(time.Millisecond)
	}
	close(release)
	var last report.ConnectionCopy
	for !last.IsClosed() {
		for _, one := range <-lists {
			last = one
		}
	}
	if last.Idle < stopped-10*time.Millisecond {
		t.Errorf("a copy that has waited for %v is %v old", stopped, last.Idle)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

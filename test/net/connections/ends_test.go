package connections_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// ends counts how the connections of the endpoints' servers end.
type ends struct{ reset, other atomic.Int64 }

// want waits until n connections have ended by a RST, and fails the test if others ended otherwise.
func (e *ends) want(t *testing.T, n int) {
	t.Helper()
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		if reset, other := int(e.reset.Load()), e.other.Load(); reset != n || other != 0 {
			return fmt.Errorf("%d endpoints got a RST, want %d; %d connections ended otherwise", reset, n, other)
		}
		return nil
	})
}

// serveCountedEcho starts an echo server at port 7 and more ports of every endpoint, which records
// how connections end.
func serveCountedEcho(r *rig.Rig, more ...int) *ends {
	r.T.Helper()
	e := &ends{}
	for _, h := range append(r.Endpoints[:], r.LB) {
		for _, port := range append([]int{7}, more...) {
			if err := h.ServeTCP(fmt.Sprintf(":%d", port), e.serve); err != nil {
				r.T.Fatal(err)
			}
		}
	}
	return e
}

// serve echoes, and counts how the connection ends.
func (e *ends) serve(c *net.TCPConn) {
	buf := make([]byte, 256)
	for {
		n, err := c.Read(buf)
		if err == nil {
			_, err = c.Write(buf[:n])
		}
		if errors.Is(err, syscall.ECONNRESET) {
			e.reset.Add(1)
			return
		}
		if err != nil {
			e.other.Add(1)
			return
		}
	}
}

// open opens connections of the client, and exchanges a line over each.
func open(r *rig.Rig, address string, n int) []*net.TCPConn {
	r.T.Helper()
	all := make([]*net.TCPConn, n)
	for i := range all {
		all[i] = r.Dial(address)
		if err := rig.Exchange(all[i], "hello"); err != nil {
			r.T.Fatal(err)
		}
	}
	return all
}

// resetAfter waits until a client's connection is reset, and returns how long that took.
func resetAfter(c *net.TCPConn, patience time.Duration) (time.Duration, error) {
	start := time.Now()
	if err := c.SetReadDeadline(start.Add(patience)); err != nil {
		return 0, err
	}
	_, err := c.Read(make([]byte, 1))
	if !errors.Is(err, syscall.ECONNRESET) {
		return 0, fmt.Errorf("after %v: %w, not a RST", time.Since(start), err)
	}
	return time.Since(start), nil
}

// allReset waits until all of these clients are reset, and returns how long the last one took.
func allReset(t *testing.T, all []*net.TCPConn, patience time.Duration) (last time.Duration) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, c := range all {
		wg.Go(func() {
			took, err := resetAfter(c, patience)
			if err != nil {
				t.Errorf("connection %v > %v is not reset: %v", c.LocalAddr(), c.RemoteAddr(), err)
			}
			mu.Lock()
			defer mu.Unlock()
			last = max(last, took)
		})
	}
	wg.Wait()
	return last
}

// busy uses connections until the returned function is called, which fails the test if one of them
// has ended.
func busy(t *testing.T, all []*net.TCPConn) (stop func()) {
	t.Helper()
	done := make(chan struct{})
	var wg sync.WaitGroup
	for _, c := range all {
		wg.Go(func() {
			for {
				if err := rig.Exchange(c, "go on"); err != nil {
					t.Errorf("a connection that is in use, %v > %v: %v", c.LocalAddr(), c.RemoteAddr(), err)
					return
				}
				select {
				case <-done:
					return
				case <-time.After(200 * time.Millisecond):
				}
			}
		})
	}
	return func() { close(done); wg.Wait() }
}

// createTranslations creates a service for each kind of translation, with echo servers behind, and
// returns the addresses that a client dials, from port 80 up. flags are appended to each command.
func createTranslations(r *rig.Rig, flags string) []string {
	r.T.Helper()
	var addresses []string
	for i, s := range []struct{ vip, endpoints, flags string }{
		{rig.VIP4, rig.Endpoints4(), ""},
		{rig.VIP4, rig.Endpoints4(), "--mode=onearm"},
		{rig.VIP4, rig.Endpoints4(), "--mode=fullnat"},
		{rig.VIP6, rig.Endpoints6(), ""},
		{rig.VIP6, rig.Endpoints6(), "--mode=fullnat"},
		{rig.VIP4, rig.Endpoints6(), ""},
		{rig.VIP6, rig.Endpoints4(), ""},
		{rig.VIP4, "31.31.31.254:1", ""}, // this machine
	} {
		r.Loxicmd("create lb %s --tcp=%d:7 --endpoints=%s %s %s", s.vip, 80+i, s.endpoints, s.flags, flags)
		addresses = append(addresses, rig.Join(s.vip, 80+i))
	}
	return addresses
}

// strictSources turns on strict reverse path filtering in the balancer: it refuses packets from
// sources that it would not reach by the interface at which they arrive.
func strictSources(t testing.TB, s *netnstest.Standard) {
	t.Helper()
	if err := s.LB.Sysctl("net/ipv4/conf/all/rp_filter", "1"); err != nil {
		t.Fatal(err)
	}
}

// TestIdleEnds checks for each kind of translation that 100 idle connections end for both sides
// soon after their timeout, and that connections in use stay.
func TestIdleEnds(t *testing.T) {
	t.Parallel()
	const each, timeout = 100, 3 * time.Second
	r := rig.New(t, rig.Options{Before: strictSources})
	ended := serveCountedEcho(r)
	var idle, used []*net.TCPConn
	for _, address := range createTranslations(r, "--inatimeout=3") {
		used = append(used, open(r, address, 1)...)
		idle = append(idle, open(r, address, each)...)
	}
	stop := busy(t, used)
	const sweepPeriod, slack = 5 * time.Second, 2 * time.Second
	last := allReset(t, idle, timeout+slack+sweepPeriod+rig.Patience)
	t.Logf("%d connections, silent for %v, had ended after %v", len(idle), timeout, last)
	stop()
	ended.want(t, len(idle))
	if got := int(r.Metric("idle_resets_total")); got != len(idle) {
		t.Errorf("%d ends are counted, want %d", got, len(idle))
	}
}

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

// endCounter counts the connections of the endpoints' servers that ended by a RST, and others.
type endCounter struct{ reset, other atomic.Int64 }

// wantResets waits until n connections have ended by a RST. The test fails if a connection ended
// otherwise.
func (e *endCounter) wantResets(t *testing.T, n int) {
	t.Helper()
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		if reset, other := int(e.reset.Load()), e.other.Load(); reset != n || other != 0 {
			return fmt.Errorf("%d endpoints got a RST, want %d; %d connections ended otherwise", reset, n, other)
		}
		return nil
	})
}

// serveCountedEcho starts echo servers at port 7 and the given ports of every endpoint. They count
// how connections end.
func serveCountedEcho(r *rig.Rig, more ...int) *endCounter {
	r.T.Helper()
	e := &endCounter{}
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
func (e *endCounter) serve(c *net.TCPConn) {
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

// openConnections opens connections of the client, and exchanges a line over each.
func openConnections(r *rig.Rig, address string, n int) []*net.TCPConn {
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

// awaitReset waits until a client's connection is reset, and returns how long that took.
func awaitReset(c *net.TCPConn, patience time.Duration) (time.Duration, error) {
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

// awaitResets waits until all connections are reset, and returns how long the last one took.
func awaitResets(t *testing.T, all []*net.TCPConn, patience time.Duration) (last time.Duration) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, c := range all {
		wg.Go(func() {
			took, err := awaitReset(c, patience)
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

// keepUsing exchanges data over connections until stop is called. The test fails if one of them
// ends.
func keepUsing(t *testing.T, all []*net.TCPConn) (stop func()) {
	t.Helper()
	done := make(chan struct{})
	var wg sync.WaitGroup
	for _, c := range all {
		wg.Go(func() {
			for {
				if err := rig.Exchange(c, "go on"); err != nil {
					t.Errorf("connection %v > %v, which is in use: %v", c.LocalAddr(), c.RemoteAddr(), err)
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

// createTranslations creates a service for each kind of translation, and returns their addresses.
// Their endpoints are echo servers. flags are appended to each command.
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

// enableStrictRPF enables strict reverse path filtering in the balancer: the kernel drops a packet
// unless the route to its source leads to the interface at which it has arrived.
func enableStrictRPF(t testing.TB, s *netnstest.Standard) {
	t.Helper()
	if err := s.LB.Sysctl("net/ipv4/conf/all/rp_filter", "1"); err != nil {
		t.Fatal(err)
	}
}

// TestIdleEnds checks, for each kind of translation, that 100 idle connections are reset soon after
// their timeout, and that connections in use continue.
func TestIdleEnds(t *testing.T) {
	t.Parallel()
	const each, timeout = 100, 3 * time.Second
	r := rig.SharedAfter(t, enableStrictRPF)
	ended := serveCountedEcho(r)
	var idle, used []*net.TCPConn
	for _, address := range createTranslations(r, "--inatimeout=3") {
		used = append(used, openConnections(r, address, 1)...)
		idle = append(idle, openConnections(r, address, each)...)
	}
	stop := keepUsing(t, used)
	const sweepPeriod, slack = 5 * time.Second, 2 * time.Second
	last := awaitResets(t, idle, timeout+slack+sweepPeriod+rig.Patience)
	t.Logf("%d connections with an idle timeout of %v ended within %v", len(idle), timeout, last)
	stop()
	ended.wantResets(t, len(idle))
	if got := int(r.Metric("idle_resets_total")); got != len(idle) {
		t.Errorf("%d ends are counted, want %d", got, len(idle))
	}
}

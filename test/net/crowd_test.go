package net_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/internal/netnstest"
	"loxilb/internal/netnstest/labtest"
)

// pace is how often each client of a crowd does something.
const pace = 10 * time.Millisecond

// crowd is clients that never rest: some send a byte every 10 ms over one connection that they hold and want it back, others open a
// connection every 10 ms, and close it when they have had an answer by it.
type crowd struct {
	t       testing.TB
	client  *netnstest.Host
	wg      sync.WaitGroup
	stop    chan struct{}
	opening sync.RWMutex // held for writing: nobody opens connections

	mu      sync.Mutex
	err     error          // the first
	opened  map[string]int // connections, by address
	bytes   map[string]int // that came back
	slowest time.Duration  // answer
	late    []wait         // for answers over connections that are held, longer than notable
}

// notable is how long an answer takes that is looked at.
const notable = 25 * time.Millisecond

// wait is a time in which a client waited.
type wait struct {
	from, to time.Time
	repeated bool // its kernel has sent something again
}

func (w wait) length() time.Duration { return w.to.Sub(w.from) }

func (w wait) overlaps(other wait) bool { return w.from.Before(other.to) && other.from.Before(w.to) }

// repeats is how many segments were sent again over a connection.
func repeats(conn net.Conn) (n uint32) {
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.SOL_TCP, unix.TCP_INFO); err == nil {
			n = info.Total_retrans
		}
	})
	return n
}

func newCrowd(r *rig) *crowd {
	c := &crowd{t: r.t, client: r.Client, stop: make(chan struct{}), opened: map[string]int{}, bytes: map[string]int{}}
	r.lab().Cleanup(func() { _ = c.finish() })
	return c
}

// hold has clients hold connections.
func (c *crowd) hold(address string, connections int) {
	c.t.Helper()
	for range connections {
		conn, err := c.dial(address)
		if err != nil {
			c.t.Fatal(err)
		}
		c.wg.Go(func() {
			defer conn.Close()
			before := repeats(conn)
			c.each(func(n byte) error {
				w := wait{from: time.Now()}
				err := c.byteOver(conn, address, n)
				w.to = time.Now()
				if w.length() > notable {
					now := repeats(conn)
					w.repeated, before = now != before, now
					c.noteLate(w)
				}
				return err
			})
		})
	}
}

// visit has a client open connections.
func (c *crowd) visit(address string) {
	c.wg.Go(func() {
		c.each(func(n byte) error {
			c.opening.RLock()
			defer c.opening.RUnlock()
			conn, err := c.dial(address)
			if err != nil {
				return err
			}
			defer conn.Close()
			return c.byteOver(conn, address, n)
		})
	})
}

// each does something again and again, until it fails or the crowd is to go.
func (c *crowd) each(f func(n byte) error) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for n := byte(0); ; n++ {
		select {
		case <-c.stop:
			return
		case <-tick.C:
		}
		start := time.Now()
		err := f(n)
		c.mu.Lock()
		c.slowest = max(c.slowest, time.Since(start))
		if err != nil && c.err == nil {
			c.err = fmt.Errorf("a client, %v after its start: %w", time.Since(start).Round(time.Millisecond), err)
		}
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (c *crowd) dial(address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := c.client.DialContext(ctx, "tcp", address)
	if err == nil {
		c.mu.Lock()
		c.opened[address]++
		c.mu.Unlock()
	}
	return conn, err
}

func (c *crowd) byteOver(conn net.Conn, address string, n byte) error {
	if err := exchange(conn, string([]byte{n})); err != nil {
		return fmt.Errorf("over %s of %s: %w", conn.LocalAddr(), address, err)
	}
	c.mu.Lock()
	c.bytes[address]++
	c.mu.Unlock()
	return nil
}

func (c *crowd) noteLate(w wait) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.late = append(c.late, w)
}

// gaps are the waits of these clients that nobody else explains: longer than that, for something that was lost, while none of the
// others waited. Without a loss, what a client waits for is a CPU: the balancer keeps no packet.
func (c *crowd) gaps(longest time.Duration, others *crowd) (list []wait) {
	for _, w := range c.late {
		if w.length() > longest && w.repeated && !slices.ContainsFunc(others.late, w.overlaps) {
			list = append(list, w)
		}
	}
	return list
}

// failure is the first error that any client has seen.
func (c *crowd) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// flows waits until each address has answered again.
func (c *crowd) flows() {
	c.t.Helper()
	count := func() map[string]int {
		c.mu.Lock()
		defer c.mu.Unlock()
		out := map[string]int{}
		for address, n := range c.bytes {
			out[address] = n
		}
		return out
	}
	before := count()
	labtest.Eventually(c.t, patience, func(context.Context) error {
		for address, n := range count() {
			if n < before[address]+3 {
				return fmt.Errorf("%s has answered %d times", address, n-before[address])
			}
		}
		return c.failure()
	})
}

// answers is how many bytes have come back.
func (c *crowd) answers() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, bytes := range c.bytes {
		n += bytes
	}
	return n
}

// atRest calls f with how many connections were opened to each address, while none is being opened.
func (c *crowd) atRest(f func(opened map[string]int)) {
	c.opening.Lock()
	defer c.opening.Unlock()
	f(c.opened)
}

// finish ends the crowd, and returns the first error of any client.
func (c *crowd) finish() error {
	select {
	case <-c.stop:
	default:
		close(c.stop)
	}
	c.wg.Wait()
	return c.failure()
}

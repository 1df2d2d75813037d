package rig

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// Pace is the time between two messages or connections of a client.
const Pace = 10 * time.Millisecond

// Clients generate steady load. Some hold a connection, and send a byte that the server returns
// every 10 ms. Others open a connection every 10 ms and close it after an answer.
type Clients struct {
	t       testing.TB
	client  *netnstest.Host
	wg      sync.WaitGroup
	stop    chan struct{}
	opening sync.RWMutex // held for writing: no connection is opened

	mu        sync.Mutex
	err       error          // the first error of any client
	opened    map[string]int // connections, by address
	bytes     map[string]int // returned by servers, by address
	Slowest   time.Duration  // longest wait for an answer
	slowWaits []Wait         // over held connections, longer than slowAfter
}

// slowAfter is the time from which on an answer is recorded as slow.
const slowAfter = 25 * time.Millisecond

// Wait is a period in which a client waited for an answer.
type Wait struct {
	from, to      time.Time
	retransmitted bool // the client's kernel has retransmitted a segment meanwhile
}

// Length returns the length of the period.
func (w Wait) Length() time.Duration { return w.to.Sub(w.from) }

func (w Wait) overlaps(other Wait) bool { return w.from.Before(other.to) && other.from.Before(w.to) }

// retransmissions returns how many segments the kernel has retransmitted over a connection.
func retransmissions(conn net.Conn) (n uint32) {
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

// NewClients returns clients on the rig's client host. Hold and OpenRepeatedly start the load.
func NewClients(r *Rig) *Clients {
	c := &Clients{t: r.T, client: r.Client, stop: make(chan struct{}), opened: map[string]int{}, bytes: map[string]int{}}
	r.Lab.Cleanup(func() { _ = c.Finish() })
	return c
}

// Hold starts clients that hold connections.
func (c *Clients) Hold(address string, connections int) {
	c.t.Helper()
	for range connections {
		conn, err := c.Dial(address)
		if err != nil {
			c.t.Fatal(err)
		}
		c.wg.Go(func() {
			defer conn.Close()
			before := retransmissions(conn)
			c.each(func(n byte) error {
				w := Wait{from: time.Now()}
				err := c.exchangeByte(conn, address, n)
				w.to = time.Now()
				if w.Length() > slowAfter {
					now := retransmissions(conn)
					w.retransmitted, before = now != before, now
					c.recordWait(w)
				}
				return err
			})
		})
	}
}

// OpenRepeatedly starts a client that opens connections and closes them.
func (c *Clients) OpenRepeatedly(address string) {
	c.wg.Go(func() {
		c.each(func(n byte) error {
			c.opening.RLock()
			defer c.opening.RUnlock()
			conn, err := c.Dial(address)
			if err != nil {
				return err
			}
			defer conn.Close()
			return c.exchangeByte(conn, address, n)
		})
	})
}

// each calls f every Pace until it fails or Finish is called.
func (c *Clients) each(f func(n byte) error) {
	tick := time.NewTicker(Pace)
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
		c.Slowest = max(c.Slowest, time.Since(start))
		if err != nil && c.err == nil {
			c.err = fmt.Errorf("a client, %v after its start: %w", time.Since(start).Round(time.Millisecond), err)
		}
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Dial opens a connection, and counts it.
func (c *Clients) Dial(address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	conn, err := c.client.DialContext(ctx, "tcp", address)
	if err == nil {
		c.mu.Lock()
		c.opened[address]++
		c.mu.Unlock()
	}
	return conn, err
}

func (c *Clients) exchangeByte(conn net.Conn, address string, n byte) error {
	if err := Exchange(conn, string([]byte{n})); err != nil {
		return fmt.Errorf("over %s of %s: %w", conn.LocalAddr(), address, err)
	}
	c.mu.Lock()
	c.bytes[address]++
	c.mu.Unlock()
	return nil
}

func (c *Clients) recordWait(w Wait) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slowWaits = append(c.slowWaits, w)
}

// Gaps returns waits longer than the given time in which a packet was lost, unless one of the other
// clients waited at the same time. Without a loss, a client waits only for a CPU: the balancer
// queues no packets.
func (c *Clients) Gaps(longest time.Duration, others *Clients) (list []Wait) {
	for _, w := range c.slowWaits {
		if w.Length() > longest && w.retransmitted && !slices.ContainsFunc(others.slowWaits, w.overlaps) {
			list = append(list, w)
		}
	}
	return list
}

// Failure returns the first error that any client has seen.
func (c *Clients) Failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// AwaitAnswers waits until each address has answered three more times.
func (c *Clients) AwaitAnswers() {
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
	labtest.Eventually(c.t, Patience, func(context.Context) error {
		for address, n := range count() {
			if n < before[address]+3 {
				return fmt.Errorf("%s has answered %d times", address, n-before[address])
			}
		}
		return c.Failure()
	})
}

// Answers returns how many bytes servers have returned.
func (c *Clients) Answers() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, bytes := range c.bytes {
		n += bytes
	}
	return n
}

// PauseOpening calls f with the number of connections opened to each address. No client opens a
// connection meanwhile.
func (c *Clients) PauseOpening(f func(opened map[string]int)) {
	c.opening.Lock()
	defer c.opening.Unlock()
	f(c.opened)
}

// Finish stops all clients, and returns the first error of any of them.
func (c *Clients) Finish() error {
	select {
	case <-c.stop:
	default:
		close(c.stop)
	}
	c.wg.Wait()
	return c.Failure()
}

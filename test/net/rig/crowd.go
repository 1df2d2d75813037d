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

// Pace is how often each client of a crowd does something.
const Pace = 10 * time.Millisecond

// Crowd generates steady load. Some clients hold a connection, send a byte every 10 ms and expect
// it back; others open a connection every 10 ms and close it after an answer.
type Crowd struct {
	t       testing.TB
	client  *netnstest.Host
	wg      sync.WaitGroup
	stop    chan struct{}
	opening sync.RWMutex // held for writing: no connection is opened

	mu      sync.Mutex
	err     error          // the first
	opened  map[string]int // connections, by address
	bytes   map[string]int // that came back
	Slowest time.Duration  // answer
	late    []Wait         // for answers over connections that are held, longer than notable
}

// notable is the time from which on an answer is recorded as late.
const notable = 25 * time.Millisecond

// Wait is a period in which a client waited for an answer.
type Wait struct {
	from, to time.Time
	repeated bool // its kernel has sent a segment again
}

// Length returns how long it took.
func (w Wait) Length() time.Duration { return w.to.Sub(w.from) }

func (w Wait) overlaps(other Wait) bool { return w.from.Before(other.to) && other.from.Before(w.to) }

// repeats returns how many segments were sent again over a connection.
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

// NewCrowd returns a crowd of the rig's client without load: see Hold and Visit.
func NewCrowd(r *Rig) *Crowd {
	c := &Crowd{t: r.T, client: r.Client, stop: make(chan struct{}), opened: map[string]int{}, bytes: map[string]int{}}
	r.Lab.Cleanup(func() { _ = c.Finish() })
	return c
}

// Hold starts clients that hold connections.
func (c *Crowd) Hold(address string, connections int) {
	c.t.Helper()
	for range connections {
		conn, err := c.Dial(address)
		if err != nil {
			c.t.Fatal(err)
		}
		c.wg.Go(func() {
			defer conn.Close()
			before := repeats(conn)
			c.each(func(n byte) error {
				w := Wait{from: time.Now()}
				err := c.exchangeByte(conn, address, n)
				w.to = time.Now()
				if w.Length() > notable {
					now := repeats(conn)
					w.repeated, before = now != before, now
					c.recordWait(w)
				}
				return err
			})
		})
	}
}

// Visit starts a client that opens connections.
func (c *Crowd) Visit(address string) {
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

// each repeats f until it fails or the crowd finishes.
func (c *Crowd) each(f func(n byte) error) {
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
func (c *Crowd) Dial(address string) (net.Conn, error) {
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

func (c *Crowd) exchangeByte(conn net.Conn, address string, n byte) error {
	if err := Exchange(conn, string([]byte{n})); err != nil {
		return fmt.Errorf("over %s of %s: %w", conn.LocalAddr(), address, err)
	}
	c.mu.Lock()
	c.bytes[address]++
	c.mu.Unlock()
	return nil
}

func (c *Crowd) recordWait(w Wait) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.late = append(c.late, w)
}

// Gaps returns the clients' waits of more than the given time in which a packet was lost and no
// other client waited. Without a loss, a client waits only for a CPU: the balancer holds no
// packets.
func (c *Crowd) Gaps(longest time.Duration, others *Crowd) (list []Wait) {
	for _, w := range c.late {
		if w.Length() > longest && w.repeated && !slices.ContainsFunc(others.late, w.overlaps) {
			list = append(list, w)
		}
	}
	return list
}

// Failure returns the first error that any client has seen.
func (c *Crowd) Failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Flows waits until each address has answered again.
func (c *Crowd) Flows() {
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

// Answers returns how many bytes have come back.
func (c *Crowd) Answers() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, bytes := range c.bytes {
		n += bytes
	}
	return n
}

// AtRest calls f with the number of connections opened to each address, while none is being opened.
func (c *Crowd) AtRest(f func(opened map[string]int)) {
	c.opening.Lock()
	defer c.opening.Unlock()
	f(c.opened)
}

// Finish ends the crowd, and returns the first error of any client.
func (c *Crowd) Finish() error {
	select {
	case <-c.stop:
	default:
		close(c.stop)
	}
	c.wg.Wait()
	return c.Failure()
}

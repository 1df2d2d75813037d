package flowlog

import (
	"cmp"
	"errors"
	"net"
	"net/netip"
	"time"
)

const (
	dialEvery   = time.Minute // the name of the collector, or the route to it, may have changed
	dialRetry   = time.Second
	dialTimeout = 10 * time.Second
)

var errDialing = errors.New("its name is not resolved yet")

// collector is a UDP socket to a collector. Resolving its name may take long: that happens in the
// background, because other sinks wait for Write.
type collector struct {
	address string // HOST:PORT
	dial    func(address string) (net.Conn, error)
	conn    net.Conn    // nil: none yet
	dialing chan dialed // the result of the current attempt; nil: none
	next    time.Time   // of the next attempt
	err     error       // of the last attempt
}

type dialed struct {
	net.Conn
	err error
}

func newCollector(address string) collector { return collector{address: address, dial: dialUDP} }

func dialUDP(address string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout}
	return d.Dial("udp", address)
}

// connect ensures that there is a socket, and reports whether it is another one.
func (c *collector) connect(now time.Time) (isNew bool, err error) {
	var patience <-chan time.Time
	if c.dialing == nil && !now.Before(c.next) {
		done := make(chan dialed, 1)
		attempt := func() {
			conn, err := c.dial(c.address)
			done <- dialed{conn, err}
		}
		if _, err := netip.ParseAddrPort(c.address); err == nil {
			attempt() // nothing to resolve
		} else {
			go attempt()
		}
		c.dialing = done
		if c.conn == nil {
			patience = time.After(ipfixWriteTimeout)
		}
	}
	select {
	case result := <-c.dialing:
		isNew = c.use(now, result)
	default:
		if patience != nil {
			select {
			case result := <-c.dialing:
				isNew = c.use(now, result)
			case <-patience:
			}
		}
	}
	if c.conn == nil {
		return false, cmp.Or(c.err, errDialing)
	}
	return isNew, nil
}

// use takes the result of an attempt, and reports whether it replaces the socket. One between the
// same addresses does not: collectors know templates by the port that they come from.
func (c *collector) use(now time.Time, result dialed) bool {
	c.dialing, c.err = nil, result.err
	switch {
	case result.err != nil:
		c.next = now.Add(dialRetry)
		return false
	case c.conn != nil && hostOf(c.conn.LocalAddr()) == hostOf(result.LocalAddr()) && c.conn.RemoteAddr().String() == result.RemoteAddr().String():
		_ = result.Close() // nothing was sent
	default:
		_ = c.close()
		c.conn, c.next = result.Conn, now.Add(dialEvery)
		return true
	}
	c.next = now.Add(dialEvery)
	return false
}

func hostOf(a net.Addr) netip.Addr {
	ap, _ := netip.ParseAddrPort(a.String()) // it is of UDP
	return ap.Addr()
}

// failed makes the next attempt begin soon: the socket's address may no longer exist.
func (c *collector) failed(now time.Time) {
	if soon := now.Add(dialRetry); soon.Before(c.next) {
		c.next = soon
	}
}

func (c *collector) close() error {
	if c.conn == nil {
		return nil
	}
	return c.conn.Close()
}

package probe

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
)

// Sockets are shared by probers. They are opened when the first probe needs them.
type Sockets struct {
	mu     sync.Mutex
	echo   [2]*echoer // IPv4, IPv6
	closed bool
	led    atomic.Uint32 // how many echoers of their own were led to a VIP
}

// identifier returns one for an echoer whose answers come from a VIP: no client's connection has
// that as its endpoint.
func (s *Sockets) identifier() uint16 { return uint16(s.led.Add(1)) }

// ownIdentifier returns one that no client's connection has: connections with this machine's own
// address as source get no ports that the kernel assigns to sockets, and echo identifiers are
// assigned like ports.
func ownIdentifier() (uint16, error) {
	c, err := net.ListenUDP("udp", nil)
	if err != nil {
		return 0, err
	}
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Port(), c.Close()
}

func (s *Sockets) echoer(six bool) (*echoer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, net.ErrClosed
	}
	version := 0
	if six {
		version = 1
	}
	if s.echo[version] == nil {
		id, err := ownIdentifier()
		if err != nil {
			return nil, err
		}
		e, err := newEchoer(six, id, nil)
		if err != nil {
			return nil, err
		}
		s.echo[version] = e
	}
	return s.echo[version], nil
}

// Close closes them. Later probes fail.
func (s *Sockets) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var errs []error
	for _, e := range s.echo {
		if e != nil {
			errs = append(errs, e.conn.Close())
		}
	}
	return errors.Join(errs...)
}

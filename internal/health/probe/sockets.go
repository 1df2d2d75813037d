package probe

import (
	"errors"
	"net"
	"sync"
)

// Sockets is what probers share. They are opened when the first probe needs them.
type Sockets struct {
	mu     sync.Mutex
	echo   [2]*echoer // IPv4, IPv6
	closed bool
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
		e, err := newEchoer(six, nil)
		if err != nil {
			return nil, err
		}
		s.echo[version] = e
	}
	return s.echo[version], nil
}

// Close closes them. What is asked afterwards fails.
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

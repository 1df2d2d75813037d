package quictest

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
)

// Client is a connection whose socket can be replaced, as by a NAT that forgets the client's port.
type Client struct {
	*quic.Conn
	socket    *socket
	transport *quic.Transport
}

// Dial connects through a socket that listen opens.
func Dial(ctx context.Context, listen func() (net.PacketConn, error), to net.Addr) (*Client, error) {
	c := &Client{socket: &socket{listen: listen, arrived: make(chan datagram, 64), closed: make(chan struct{})}}
	if err := c.socket.replace(); err != nil {
		return nil, err
	}
	c.transport = &quic.Transport{Conn: c.socket}
	var err error
	c.Conn, err = c.transport.Dial(ctx, to, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}}, nil) //nolint:gosec // of a test
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Rebind continues from another socket, without notifying the server.
func (c *Client) Rebind() error { return c.socket.replace() }

// Migrate continues from another socket, with another connection ID: an active migration (RFC 9000
// section 9). The transport of the former socket stays open.
func (c *Client) Migrate(ctx context.Context, p net.PacketConn) error {
	path, err := c.AddPath(&quic.Transport{Conn: p})
	if err != nil {
		return err
	}
	if err := path.Probe(ctx); err != nil {
		return err
	}
	return path.Switch()
}

// Ask returns the name of the server.
func (c *Client) Ask(ctx context.Context) (string, error) {
	s, err := c.OpenStreamSync(ctx)
	if err != nil {
		return "", err
	}
	if deadline, ok := ctx.Deadline(); ok {
		if err := s.SetDeadline(deadline); err != nil {
			return "", err
		}
	}
	if _, err := s.Write([]byte("who are you?")); err != nil {
		return "", err
	}
	if err := s.Close(); err != nil {
		return "", err
	}
	name, err := io.ReadAll(s)
	return string(name), err
}

// Close ends the connection.
func (c *Client) Close() error { return errors.Join(c.transport.Close(), c.socket.Close()) }

type datagram struct {
	data []byte
	from net.Addr
}

// socket is a net.PacketConn that sends and receives only by its newest socket.
type socket struct {
	listen  func() (net.PacketConn, error)
	arrived chan datagram
	closed  chan struct{}

	mu     sync.Mutex
	newest net.PacketConn
	ends   sync.Once
}

func (s *socket) replace() error {
	p, err := s.listen()
	if err != nil {
		return err
	}
	s.mu.Lock()
	old := s.newest
	s.newest = p
	s.mu.Unlock()
	go s.receive(p)
	if old == nil {
		return nil
	}
	return old.Close()
}

func (s *socket) receive(p net.PacketConn) {
	for {
		b := make([]byte, 2048)
		n, from, err := p.ReadFrom(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP error
		}
		select {
		case s.arrived <- datagram{b[:n], from}:
		case <-s.closed:
			return
		}
	}
}

func (s *socket) current() net.PacketConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newest
}

// ReadFrom returns a datagram.
func (s *socket) ReadFrom(b []byte) (int, net.Addr, error) {
	select {
	case d := <-s.arrived:
		return copy(b, d.data), d.from, nil
	case <-s.closed:
		return 0, nil, net.ErrClosed
	}
}

// WriteTo sends a datagram. The lock keeps the socket open meanwhile.
func (s *socket) WriteTo(b []byte, to net.Addr) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newest.WriteTo(b, to)
}

// Close closes the newest socket.
func (s *socket) Close() (err error) {
	s.ends.Do(func() {
		close(s.closed)
		err = s.current().Close()
	})
	return err
}

// LocalAddr returns the address of the newest socket.
func (s *socket) LocalAddr() net.Addr { return s.current().LocalAddr() }

// SetDeadline does nothing: the transport only needs SetReadDeadline, to close.
func (s *socket) SetDeadline(time.Time) error { return nil }

// SetReadDeadline ends ReadFrom if the time has come: the transport closes.
func (s *socket) SetReadDeadline(t time.Time) error {
	if !t.IsZero() && !t.After(time.Now()) {
		return s.Close()
	}
	return nil
}

// SetWriteDeadline does nothing.
func (s *socket) SetWriteDeadline(time.Time) error { return nil }

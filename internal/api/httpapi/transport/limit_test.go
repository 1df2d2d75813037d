package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"testing"
	"time"
)

// A dialer opens connections to an address, which end with the test.
type dialer struct {
	t  *testing.T
	to net.Addr
}

func (d dialer) dial() net.Conn {
	d.t.Helper()
	var dial net.Dialer
	c, err := dial.DialContext(d.t.Context(), d.to.Network(), d.to.String())
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

// send writes a text to a connection.
func (d dialer) send(c net.Conn, text string) {
	d.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		d.t.Fatal(err)
	}
}

func answered(c net.Conn) bool {
	n, _ := c.Read(make([]byte, 1))
	return n == 1
}

// closed reports whether the other end has closed a connection without sending anything.
func closed(c net.Conn) bool {
	_, err := c.Read(make([]byte, 1))
	return err != nil && !errors.Is(err, context.DeadlineExceeded)
}

const get = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"

// TestIdleSocketsMakeRoom checks that the next connection is answered at once, however many sockets
// are open without a request, or with half of one.
func TestIdleSocketsMakeRoom(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	srv, err := Open(ctx, Listen{Plain: netip.MustParseAddrPort("127.0.0.1:0")}, parts())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ctx) }()
	d := dialer{t, srv.Addrs()[0]}
	var idle []net.Conn
	for i := range maxSourceConns + 100 {
		c := d.dial()
		if i%2 == 1 {
			d.send(c, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n1")
		}
		idle = append(idle, c)
	}
	c := d.dial()
	d.send(c, get)
	if !answered(c) {
		t.Error("a request is not answered")
	}
	if !closed(idle[0]) {
		t.Error("the socket that is idle longest is still open")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestLimitWithRequestsInProgress checks that connections with a request in progress are not closed
// for others: the next connection is closed, and the UNIX socket answers.
func TestLimitWithRequestsInProgress(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	begun, end := make(chan struct{}), make(chan struct{})
	p := Parts{Shutdown: func() {}, Log: slog.New(slog.DiscardHandler)}
	p.Handler = func(w Kind) http.Handler {
		return http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			if w == ByLoopback {
				begun <- struct{}{}
				<-end
			}
		})
	}
	srv, err := Open(ctx, Listen{Plain: netip.MustParseAddrPort("127.0.0.1:0"), Socket: filepath.Join(t.TempDir(), "s")}, p)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ctx) }()
	d := dialer{t, srv.Addrs()[0]}
	var working []net.Conn
	for range maxSourceConns {
		c := d.dial()
		d.send(c, get)
		<-begun
		working = append(working, c)
	}
	if !closed(d.dial()) {
		t.Errorf("one more than %d requests in progress was accepted", maxSourceConns)
	}
	socket := dialer{t, srv.Addrs()[1]}
	c := socket.dial()
	socket.send(c, get)
	if !answered(c) {
		t.Error("the UNIX socket does not answer")
	}
	close(end)
	for i, c := range working {
		if !answered(c) {
			t.Errorf("request %d was cut off", i)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A conn is a connection from an address to 10.9.9.9.
type conn struct {
	net.Conn
	from   string
	closed bool
}

func (c *conn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.from)) }
func (c *conn) LocalAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort("10.9.9.9:11111"))
}
func (c *conn) Close() error { c.closed = true; return nil }

// TestShareOfSource checks that a source cannot exceed its limit, that other sources can use the
// rest, and that a connection that is closed twice is counted once.
func TestShareOfSource(t *testing.T) {
	t.Parallel()
	p := newLimitedListener(nil, 4, 2)
	admit := func(from string) (*conn, *limitedConn) {
		c := &conn{from: from}
		w := p.admit(c)
		return c, w
	}
	first, _ := admit("127.0.0.1:1")
	_, second := admit("127.9.9.9:2")
	if _, w := admit("[::1]:3"); w == nil || !first.closed {
		t.Error("loopback is one source: its oldest idle connection was not closed")
	}
	if p.remote != 0 || p.sources[thisMachine()] != 2 {
		t.Errorf("%d connections of others, of sources %v", p.remote, p.sources)
	}
	second.begin()
	_, a := admit("10.0.0.1:1")
	_, b := admit("[2001:db8::1]:1")
	_, w := admit("10.0.0.2:1")
	oldest, _ := admit("10.0.0.2:2")
	a.begin()
	b.begin()
	w.begin()
	if _, w := admit("10.0.0.3:1"); w == nil || !oldest.closed || p.remote != 4 {
		t.Errorf("an idle connection was not closed for a new one: %d connections", p.remote)
	} else {
		w.begin()
	}
	if _, w := admit("10.0.0.4:1"); w != nil {
		t.Error("a connection was accepted instead of one with a request in progress")
	}
	_ = second.Close()
	if oldest, w := admit("10.9.9.9:3"); w == nil || oldest.closed || p.remote != 4 || p.sources[thisMachine()] != 2 {
		t.Errorf("connections of others keep out this machine: %d connections, of sources %v", p.remote, p.sources)
	}
	_ = a.Close()
	_ = a.Close()
	a.end()
	if p.remote != 3 || p.idle.Len() != 2 {
		t.Errorf("%d connections, %d idle", p.remote, p.idle.Len())
	}
	b.end()
	for i := range 3 {
		if _, w := admit(fmt.Sprintf("[2001:db8::%d]:1", i+2)); w == nil {
			t.Errorf("%d: the network's connection was not accepted", i)
		}
	}
	if p.remote > 4 || p.sources[netip.MustParsePrefix("2001:db8::/64")] > 2 {
		t.Errorf("%d connections, of sources %v", p.remote, p.sources)
	}
}

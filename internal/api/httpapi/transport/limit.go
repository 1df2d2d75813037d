package transport

import (
	"container/list"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
)

// Limits of connections per TCP port, and per source. They apply before authentication: otherwise
// every host that can connect, and on loopback every local user, could exhaust memory and
// descriptors. The UNIX socket is for few users, and has no such limit.
const (
	maxConns       = 1024
	maxSourceConns = 512
)

// limitedListener is a listener with a limit of open connections. At the limit it closes the
// connection that has been idle the longest: idle connections cannot keep out the machine's health
// check. If all connections have a request in progress, it closes the new one.
//
// netutil.LimitListener would make new connections wait for idle ones instead.
//
// A source is an IPv4 address, an IPv6 network of 64 bits, or this machine itself. A source at its
// limit loses its own idle connections, not those of others. Connections of this machine do not
// count towards the limit of the port: health checks (over loopback, or by kubelet from the node's
// address to itself) are accepted even while other machines use all of it.
type limitedListener struct {
	net.Listener
	max, maxSource int

	mu      sync.Mutex
	remote  int // connections from other machines
	sources map[netip.Prefix]int
	idle    *list.List // of *limitedConn without a request, the longest idle first
}

func newLimitedListener(ln net.Listener, most, ofSource int) *limitedListener {
	return &limitedListener{Listener: ln, max: most, maxSource: ofSource, sources: map[netip.Prefix]int{}, idle: list.New()}
}

// Accept returns the next connection for which there is room.
func (p *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := p.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if admitted := p.admit(c); admitted != nil {
			return admitted, nil
		}
		_ = c.Close() // no connection is idle
	}
}

// admit returns a connection that counts towards the limits, or nil if it exceeds them.
func (p *limitedListener) admit(c net.Conn) *limitedConn {
	source := sourceOf(c)
	p.mu.Lock()
	var evicted *limitedConn
	switch {
	case p.sources[source] >= p.maxSource:
		evicted = p.longestIdle(func(w *limitedConn) bool { return w.source == source })
	case source != thisMachine() && p.remote >= p.max:
		evicted = p.longestIdle(func(w *limitedConn) bool { return w.source != thisMachine() })
	default:
		defer p.mu.Unlock()
		return p.add(c, source)
	}
	if evicted == nil {
		p.mu.Unlock()
		return nil
	}
	p.remove(evicted)
	admitted := p.add(c, source)
	p.mu.Unlock()
	_ = evicted.Conn.Close()
	return admitted
}

func (p *limitedListener) longestIdle(matches func(*limitedConn) bool) *limitedConn {
	for e := p.idle.Front(); e != nil; e = e.Next() {
		if w := e.Value.(*limitedConn); matches(w) {
			return w
		}
	}
	return nil
}

func (p *limitedListener) add(c net.Conn, source netip.Prefix) *limitedConn {
	w := &limitedConn{Conn: c, listener: p, source: source}
	w.element = p.idle.PushBack(w)
	if source != thisMachine() {
		p.remote++
	}
	p.sources[source]++
	return w
}

// remove stops counting a connection, once.
func (p *limitedListener) remove(w *limitedConn) {
	if w.removed {
		return
	}
	w.removed = true
	if w.source != thisMachine() {
		p.remote--
	}
	if p.sources[w.source]--; p.sources[w.source] == 0 {
		delete(p.sources, w.source)
	}
	if w.element != nil {
		p.idle.Remove(w.element)
		w.element = nil
	}
}

// A limitedConn is a connection that counts towards the limits.
type limitedConn struct {
	net.Conn
	listener *limitedListener
	source   netip.Prefix
	element  *list.Element // in listener.idle; nil while a request is in progress
	removed  bool
}

// Close stops counting the connection.
func (w *limitedConn) Close() error {
	w.listener.mu.Lock()
	w.listener.remove(w)
	w.listener.mu.Unlock()
	return w.Conn.Close()
}

// NetConn returns the connection of the kernel.
func (w *limitedConn) NetConn() net.Conn { return w.Conn }

// begin marks the beginning of a request, end its end.
func (w *limitedConn) begin() {
	w.listener.mu.Lock()
	defer w.listener.mu.Unlock()
	if w.element != nil {
		w.listener.idle.Remove(w.element)
		w.element = nil
	}
}

func (w *limitedConn) end() {
	w.listener.mu.Lock()
	defer w.listener.mu.Unlock()
	if !w.removed && w.element == nil {
		w.element = w.listener.idle.PushBack(w)
	}
}

// limitedConnKey is the key of the limitedConn in a connection's context.
type limitedConnKey struct{}

// trackRequests marks a connection as busy from when a request and its body have been read until it
// is answered. A client that sends a body slowly counts as idle.
func trackRequests(h http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if w, ok := r.Context().Value(limitedConnKey{}).(*limitedConn); ok {
			if r.ContentLength == 0 {
				w.begin()
			} else {
				r.Body = &body{r.Body, w}
			}
			defer w.end()
		}
		h.ServeHTTP(rw, r)
	})
}

// body marks the connection as busy once the body has been read.
type body struct {
	io.ReadCloser
	conn *limitedConn
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.conn.begin()
	}
	return n, err
}

// withLimitedConn adds the limitedConn of a connection to its context, and returns the connection
// of the kernel.
func withLimitedConn(ctx context.Context, c net.Conn) (context.Context, net.Conn) {
	for {
		if w, ok := c.(*limitedConn); ok {
			return context.WithValue(ctx, limitedConnKey{}, w), w.Conn
		}
		wrapper, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return ctx, c
		}
		c = wrapper.NetConn()
	}
}

// thisMachine returns the source of connections that this machine makes to itself.
func thisMachine() netip.Prefix { return netip.PrefixFrom(netip.IPv6Loopback(), 128) }

// sourceOf returns the source of a connection. The kernel drops packets from elsewhere with our own
// address as their source.
func sourceOf(c net.Conn) netip.Prefix {
	a := addrPort(c.RemoteAddr()).Addr()
	bits := a.BitLen()
	switch {
	case a.IsLoopback(), a.IsValid() && a == addrPort(c.LocalAddr()).Addr():
		return thisMachine()
	case a.Is6():
		bits = 64
	}
	source, err := a.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return source
}

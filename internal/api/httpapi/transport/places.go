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

// Limits of connections of strangers per TCP port, and per source. Otherwise anyone who may
// connect, which on loopback is every user of this machine, could use up all memory and
// descriptors. The UNIX socket is for few users, and has no such limit.
const (
	maxConns       = 1024
	maxSourceConns = 512
)

// places is a listener with a limit of open connections. At the limit it closes the connection that
// has been idle the longest: idle sockets of strangers cannot keep out the machine's health check.
// If all connections have a request in progress, it closes the new one.
//
// netutil.LimitListener would make new connections wait for idle ones instead.
//
// The limit of a source makes the source pay for itself: an IPv4 address, an IPv6 network of 64
// bits, or this machine itself. The places of this machine are its own: health checks (loopback, or
// by kubelet from the node's address to itself) get in even while others have requests at work in
// all other places.
type places struct {
	net.Listener
	max, maxSource int

	mu      sync.Mutex
	all     int // from other machines
	sources map[netip.Prefix]int
	waiting *list.List // of *placed without a request, the longest first
}

func newPlaces(ln net.Listener, most, ofSource int) *places {
	return &places{Listener: ln, max: most, maxSource: ofSource, sources: map[netip.Prefix]int{}, waiting: list.New()}
}

// Accept returns the next connection for which there is room.
func (p *places) Accept() (net.Conn, error) {
	for {
		c, err := p.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if placed := p.place(c); placed != nil {
			return placed, nil
		}
		_ = c.Close() // no connection is idle
	}
}

// place returns a connection with a place, or nil.
func (p *places) place(c net.Conn) *placed {
	source := sourceOf(c)
	p.mu.Lock()
	var evicted *placed
	switch {
	case p.sources[source] >= p.maxSource:
		evicted = p.longestWaiting(func(w *placed) bool { return w.source == source })
	case source != thisMachine() && p.all >= p.max:
		evicted = p.longestWaiting(func(w *placed) bool { return w.source != thisMachine() })
	default:
		defer p.mu.Unlock()
		return p.add(c, source)
	}
	if evicted == nil {
		p.mu.Unlock()
		return nil
	}
	p.remove(evicted)
	placed := p.add(c, source)
	p.mu.Unlock()
	_ = evicted.Conn.Close()
	return placed
}

func (p *places) longestWaiting(matches func(*placed) bool) *placed {
	for e := p.waiting.Front(); e != nil; e = e.Next() {
		if w := e.Value.(*placed); matches(w) {
			return w
		}
	}
	return nil
}

func (p *places) add(c net.Conn, source netip.Prefix) *placed {
	w := &placed{Conn: c, places: p, source: source}
	w.element = p.waiting.PushBack(w)
	if source != thisMachine() {
		p.all++
	}
	p.sources[source]++
	return w
}

// remove releases the place of a connection, once.
func (p *places) remove(w *placed) {
	if w.removed {
		return
	}
	w.removed = true
	if w.source != thisMachine() {
		p.all--
	}
	if p.sources[w.source]--; p.sources[w.source] == 0 {
		delete(p.sources, w.source)
	}
	if w.element != nil {
		p.waiting.Remove(w.element)
		w.element = nil
	}
}

// A placed is a connection with a place.
type placed struct {
	net.Conn
	places  *places
	source  netip.Prefix
	element *list.Element // in places.waiting; nil while a request is at work
	removed bool
}

// Close releases the place.
func (w *placed) Close() error {
	w.places.mu.Lock()
	w.places.remove(w)
	w.places.mu.Unlock()
	return w.Conn.Close()
}

// NetConn returns the connection of the kernel.
func (w *placed) NetConn() net.Conn { return w.Conn }

// begin marks the beginning of a request, end its end.
func (w *placed) begin() {
	w.places.mu.Lock()
	defer w.places.mu.Unlock()
	if w.element != nil {
		w.places.waiting.Remove(w.element)
		w.element = nil
	}
}

func (w *placed) end() {
	w.places.mu.Lock()
	defer w.places.mu.Unlock()
	if !w.removed && w.element == nil {
		w.element = w.places.waiting.PushBack(w)
	}
}

// placedKey is the key of a connection's place in its context.
type placedKey struct{}

// servePlaced marks a connection as busy from when a request and its body are read until it is
// answered. A client that sends a body slowly counts as idle.
func servePlaced(h http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if w, ok := r.Context().Value(placedKey{}).(*placed); ok {
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

// A request's work begins when its body has been read.
type body struct {
	io.ReadCloser
	placed *placed
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.placed.begin()
	}
	return n, err
}

// withPlace keeps the place of a connection in its context, and returns the connection of the
// kernel.
func withPlace(ctx context.Context, c net.Conn) (context.Context, net.Conn) {
	for {
		if w, ok := c.(*placed); ok {
			return context.WithValue(ctx, placedKey{}, w), w.Conn
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

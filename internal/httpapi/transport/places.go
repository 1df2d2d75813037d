package transport

import (
	"net"
	"net/http"
	"sync"
)

// maxConns is how many connections a TCP port has open at once. Whoever may connect, and every user of this machine may to loopback, could
// take all memory and all file descriptors otherwise: the next connection waits until one is closed. The UNIX socket is for few, and has
// no such limit.
const maxConns = 1024

// places lets so many connections of a listener be open at once.
type places struct {
	net.Listener
	taken  chan struct{} // holds a value for each that is open
	closed chan struct{}
	close  func()
}

func newPlaces(ln net.Listener, n int) *places {
	p := &places{Listener: ln, taken: make(chan struct{}, n), closed: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.closed) })
	return p
}

// Accept waits for a place, then for a connection.
func (p *places) Accept() (net.Conn, error) {
	select {
	case p.taken <- struct{}{}:
	case <-p.closed:
		return nil, net.ErrClosed
	}
	c, err := p.Listener.Accept()
	if err != nil {
		<-p.taken
	}
	return c, err
}

// Close ends who waits in Accept.
func (p *places) Close() error {
	p.close()
	return p.Listener.Close()
}

// connState gives the place of a connection that is closed to the next one.
func (p *places) connState(_ net.Conn, state http.ConnState) {
	if state == http.StateClosed || state == http.StateHijacked {
		<-p.taken
	}
}

package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"loxilb/internal/host/monotime"
)

// maxGreetings bounds concurrent handshakes, separately for addresses of nodes and for others.
const maxGreetings = 16

// acceptPause is the pause after a connection could not be accepted, for example because the
// process has too many open files.
const acceptPause = 100 * time.Millisecond

// Host describes the local node to its server.
type Host struct {
	Hello            func() *Hello // returns the node's current greeting
	Credentials      *Credentials
	IsNode           func(host string) bool               // reports whether a node is configured there
	CheckPeer        func(from string, peer *Hello) error // returns why the node refuses a compatible peer
	HasConnectionsOf func(node string) bool               // reports whether this process has received all of a node's connections
	Handle           func(*Conn)                          // exchanges connections with a node
	Refused          func(from string, err error)         // called for each refused connection
	Failing          func(err error)                      // called when no connection can be accepted for now
}

// Serve accepts nodes at a listener until ctx ends, and closes it. Places are reserved for the
// addresses of nodes, so silent strangers cannot keep nodes out.
func (h *Host) Serve(ctx context.Context, l net.Listener) error {
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		_ = l.Close()
	})
	defer func() {
		if !stop() {
			<-closed // Accept may return before the port is free
		}
	}()
	var running sync.WaitGroup
	defer running.Wait()
	places := map[bool]chan struct{}{true: make(chan struct{}, maxGreetings), false: make(chan struct{}, maxGreetings)}
	for failing := false; ; {
		plain, err := l.Accept()
		if ctx.Err() != nil {
			if err == nil {
				_ = plain.Close()
			}
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("accept nodes: %w", err)
		}
		if err != nil {
			if !failing {
				h.Failing(err)
			}
			failing = true
			monotime.Sleep(ctx, acceptPause)
			continue
		}
		failing = false
		host, _, _ := net.SplitHostPort(plain.RemoteAddr().String())
		greeting := places[h.IsNode(host)]
		select {
		case greeting <- struct{}{}:
		default: // all places are taken; nodes try again
			_ = plain.Close()
			continue
		}
		running.Go(func() {
			defer plain.Close() //nolint:errcheck // it is over
			end := context.AfterFunc(ctx, func() { _ = plain.Close() })
			defer end()
			c, err := accept(ctx, plain, h)
			<-greeting
			if err == nil {
				h.Handle(c)
			} else if !errors.Is(err, ErrSelf) && !(errors.Is(err, errSilent) && errors.Is(err, io.EOF)) {
				h.Refused(plain.RemoteAddr().String(), err)
			}
		})
	}
}

package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"loxilb/test/await"
)

// shortListener is a listener whose process has too many open files at first.
type shortListener struct {
	net.Listener
	failures atomic.Int32
}

func (l *shortListener) Accept() (net.Conn, error) {
	if l.failures.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return l.Listener.Accept()
}

// TestAcceptFails checks that nodes can connect again after the process had too many open files.
func TestAcceptFails(t *testing.T) {
	t.Parallel()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &shortListener{Listener: plain}
	l.failures.Store(3)
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(strings.Repeat("k", 64)), 0o600); err != nil {
		t.Fatal(err)
	}
	node := func(name string) (*Hello, *Credentials) {
		c, err := KeyFile(key, name)
		if err != nil {
			t.Fatal(err)
		}
		return &Hello{Version: Version, Oldest: Oldest, Node: name, Boot: name, Self: -1}, c
	}
	own, credentials := node("one")
	var failing atomic.Int32
	h := &Host{
		Hello: func() *Hello { return own }, Credentials: credentials, IsNode: func(string) bool { return true },
		CheckPeer: func(string, *Hello) error { return nil }, HasConnectionsOf: func(string) bool { return false }, Handle: func(*Conn) {}, Refused: func(string, error) {},
		Failing: func(err error) {
			failing.Add(1)
			if !errors.Is(err, syscall.EMFILE) {
				t.Errorf("got %v, want the error syscall.EMFILE", err)
			}
		},
	}
	go func() {
		if err := h.Serve(t.Context(), l); err != nil {
			t.Errorf("the server has ended: %v", err)
		}
	}()
	other, theirs := node("two")
	await.True(t, 20*time.Second, "a node connects", func() bool { return greets(t, plain.Addr().String(), other, theirs) })
	if n := failing.Load(); n != 1 {
		t.Errorf("three failures in a row were reported %d times", n)
	}
}

// greets reports whether a node that connects to an address is greeted.
func greets(t *testing.T, address string, own *Hello, credentials *Credentials) bool {
	t.Helper()
	c, err := Dial(t.Context(), address, own, credentials)
	if err == nil {
		_ = c.Close()
	}
	return err == nil
}

// slowListener is a listener whose port is free only a second after Accept has returned.
type slowListener struct {
	net.Listener
	closing chan struct{}
	free    atomic.Bool
}

func (l *slowListener) Accept() (net.Conn, error) {
	<-l.closing
	return nil, net.ErrClosed
}

func (l *slowListener) Close() error {
	close(l.closing)
	time.Sleep(time.Second)
	l.free.Store(true)
	return nil
}

// TestServeFreesPort checks that the port is free once Serve returns: the next node may listen
// there.
func TestServeFreesPort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &slowListener{closing: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := new(Host).Serve(ctx, l); err != nil || !l.free.Load() {
			t.Errorf("got %v, free: %v, want no error, a free port", err, l.free.Load())
		}
	})
}

// TestAbort checks that a connection ends at once although its peer reads nothing: nodes abort
// connections while they hold locks.
func TestAbort(t *testing.T) {
	t.Parallel()
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(strings.Repeat("k", 64)), 0o600); err != nil {
		t.Fatal(err)
	}
	credentials, err := KeyFile(key, "one")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer there.Close() //nolint:errcheck // it is a pipe
		greeted := make(chan error, 1)
		go func() {
			_, err := tls.Client(there, credentials.Config()).Read(make([]byte, 1))
			greeted <- err
		}()
		c := newConn(tls.Server(here, credentials.Config()))
		if _, err := c.conn.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		if err := <-greeted; err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := c.Abort(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("the connection has ended after %v", took)
		}
	})
}

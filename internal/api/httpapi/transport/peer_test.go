package transport

import (
	"errors"
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const nobody = 65534

// as runs f on a thread whose new sockets belong to another user.
func as(uid int, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
		_ = syscall.Setfsuid(uid)
		f()
	}()
	<-done
}

// pair returns the server's end of a connection that a user opened, and the client's end.
func pair(t *testing.T, ln net.Listener, uid int, dial func() (net.Conn, error)) (server, client net.Conn) {
	t.Helper()
	var err error
	as(uid, func() { client, err = dial() })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	if server, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return server, client
}

func newTestPeers(t *testing.T) *peers {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root makes sockets of others")
	}
	p, err := newPeers()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	return p
}

func listenLoopback(t *testing.T, host string) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln
}

// mapped connects to an IPv4 address by an IPv6 socket, which Go does not do by itself.
func mapped(port int) (net.Conn, error) {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "mapped")
	defer f.Close() //nolint:errcheck // the connection has a copy
	to := &unix.SockaddrInet6{Port: port, Addr: [16]byte{10: 0xff, 11: 0xff, 12: 127, 15: 1}}
	if err := unix.Connect(fd, to); err != nil {
		return nil, err
	}
	return net.FileConn(f)
}

func TestPeerUID(t *testing.T) {
	t.Parallel()
	p := newTestPeers(t)
	v4, v6 := listenLoopback(t, "127.0.0.1"), listenLoopback(t, "::1")
	dial := func(ln net.Listener) func() (net.Conn, error) {
		return func() (net.Conn, error) { return net.Dial("tcp", ln.Addr().String()) }
	}
	for name, tc := range map[string]struct {
		ln   net.Listener
		dial func() (net.Conn, error)
	}{
		"IPv4":   {v4, dial(v4)},
		"IPv6":   {v6, dial(v6)},
		"mapped": {v4, func() (net.Conn, error) { return mapped(v4.Addr().(*net.TCPAddr).Port) }},
	} {
		for _, uid := range []int{0, nobody, 1234} {
			server, _ := pair(t, tc.ln, uid, tc.dial)
			if got, err := p.uid(server); err != nil || int(got) != uid {
				t.Errorf("%s: user %d, %v; want %d", name, got, err, uid)
			}
			// the same by /proc, for kernels without sock_diag
			remote, local := addrPort(server.RemoteAddr()), addrPort(server.LocalAddr())
			if m, err := procSocket(remote, local); err != nil || m.Local != remote || m.Remote != local || !isOpen(&m) || int(m.UID) != uid {
				t.Errorf("%s by /proc: %+v, %v; want %d", name, m, err, uid)
			}
		}
	}
}

// TestPeerGone checks that a client that closes its socket early is not treated as root: the kernel
// shows such a socket as root's.
func TestPeerGone(t *testing.T) {
	t.Parallel()
	p := newTestPeers(t)
	ln := listenLoopback(t, "127.0.0.1")
	for name, leave := range map[string]func(*net.TCPConn) error{
		"closed": func(c *net.TCPConn) error { return c.Close() },
		"reset":  func(c *net.TCPConn) error { return errors.Join(c.SetLinger(0), c.Close()) },
	} {
		server, client := pair(t, ln, nobody, func() (net.Conn, error) { return net.Dial("tcp", ln.Addr().String()) })
		if _, err := client.Write([]byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		if err := leave(client.(*net.TCPConn)); err != nil {
			t.Fatal(err)
		}
		deadline := time.Now().Add(100 * time.Millisecond) // through all states of the closing socket
		for time.Now().Before(deadline) {
			if uid, err := p.uid(server); !errors.Is(err, ErrNoPeer) {
				t.Fatalf("%s: user %d, %v", name, uid, err)
			}
		}
	}
	// Half closed: the process still exists and reads.
	server, client := pair(t, ln, nobody, func() (net.Conn, error) { return net.Dial("tcp", ln.Addr().String()) })
	if err := client.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if uid, err := p.uid(server); err != nil || uid != nobody {
		t.Errorf("half closed: user %d, %v", uid, err)
	}
}

// BenchmarkPeerUID measures what finding the user costs each connection.
func BenchmarkPeerUID(b *testing.B) {
	p, err := newPeers()
	if err != nil {
		b.Fatal(err)
	}
	defer p.close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close() //nolint:errcheck // of a test
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // of a test
	server, err := ln.Accept()
	if err != nil {
		b.Fatal(err)
	}
	defer server.Close() //nolint:errcheck // of a test
	for b.Loop() {
		if _, err := p.uid(server); err != nil {
			b.Fatal(err)
		}
	}
}

package probe

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"
)

// TestHandshake checks that Handshake succeeds if the endpoint accepts the connection and, where it
// is kept open, does not reset it.
func TestHandshake(t *testing.T) {
	bothVersions(t, func(t *testing.T, loopback netip.Addr) {
		const timeout, hold = 400 * time.Millisecond, 100 * time.Millisecond
		server := func(handle func(*net.TCPConn)) netip.AddrPort {
			l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(loopback, 0)))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			go func() {
				for {
					c, err := l.AcceptTCP()
					if err != nil {
						return
					}
					handle(c)
				}
			}()
			return l.Addr().(*net.TCPAddr).AddrPort()
		}
		resets := server(func(c *net.TCPConn) {
			_ = c.SetLinger(0)
			c.Close()
		})
		ends := server(func(c *net.TCPConn) { c.Close() })
		speaks := server(func(c *net.TCPConn) { _, _ = c.Write([]byte("220 ready")) })
		silent := server(func(*net.TCPConn) {})
		for _, to := range []netip.AddrPort{resets, ends, speaks, silent} {
			if err := Handshake(t.Context(), to, 10*timeout, 0); err != nil {
				t.Errorf("%s: %v", to, err)
			}
		}
		for _, to := range []netip.AddrPort{ends, speaks, silent} {
			if err := Handshake(t.Context(), to, 10*timeout, hold); err != nil {
				t.Errorf("%s, held: %v", to, err)
			}
		}
		if err := Handshake(t.Context(), resets, 10*timeout, 10*hold); err == nil || err.Error() != "connection reset by peer" {
			t.Errorf(`got %v, want an error, the error "connection reset by peer"`, err)
		}
		if err := Handshake(t.Context(), closedPort(loopback), timeout, 0); err == nil || err.Error() != "connection refused" {
			t.Errorf(`got %v, want an error, the error "connection refused"`, err)
		}
		start := time.Now()
		if err := Handshake(t.Context(), unansweringPort(t, loopback), timeout, 0); !errors.Is(err, errTimeout) || time.Since(start) < timeout {
			t.Errorf("%v after %s", err, time.Since(start))
		}
	})
}

package rig

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"loxilb/test/netnstest"
)

// ServeSources starts servers on :7000 of every endpoint, over TCP and UDP. They answer each line
// with the address and port of its sender.
func ServeSources(r *Rig) {
	r.T.Helper()
	for _, h := range r.Endpoints {
		r.ServeSource(h, ":7000", ":7000")
	}
}

// ServeSource starts these servers on one host: at one address for TCP, and at any number of
// addresses for UDP.
func (r *Rig) ServeSource(h *netnstest.Host, tcp string, udp ...string) {
	r.T.Helper()
	err := h.ServeTCP(tcp, func(c *net.TCPConn) {
		buf := make([]byte, 64)
		for {
			if _, err := c.Read(buf); err != nil {
				return
			}
			if _, err := fmt.Fprintf(c, "%s", c.RemoteAddr()); err != nil {
				return
			}
		}
	})
	if err != nil {
		r.T.Fatal(err)
	}
	for _, address := range udp {
		u, err := h.ListenPacket("udp", address)
		if err != nil {
			r.T.Fatal(err)
		}
		r.Lab.Cleanup(func() { _ = u.Close() })
		go func() {
			buf := make([]byte, 64)
			for {
				_, from, err := u.ReadFrom(buf)
				if err != nil {
					return
				}
				_, _ = u.WriteTo([]byte(from.String()), from)
			}
		}()
	}
}

// AskSource sends a line to a server of ServeSource, and returns the source address that the server
// sees.
func AskSource(c net.Conn) (string, error) {
	var last error
	for range 3 { // UDP may lose packets
		if err := c.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
			return "", err
		}
		if _, err := c.Write([]byte("who am I?\n")); err != nil {
			return "", err
		}
		buf := make([]byte, 64)
		n, err := c.Read(buf)
		if err == nil {
			host, _, err := net.SplitHostPort(string(buf[:n]))
			return strings.TrimPrefix(host, "::ffff:"), err
		}
		last = err
		if c.LocalAddr().Network() == "tcp" {
			break
		}
	}
	return "", last
}

// WantSource opens a connection, and fails the test unless the endpoint sees the source address
// want.
func (r *Rig) WantSource(from *netnstest.Host, network, address, want string) net.Conn {
	r.T.Helper()
	ctx, cancel := context.WithTimeout(r.T.Context(), Patience)
	defer cancel()
	c, err := from.DialContext(ctx, network, address)
	if err != nil {
		r.T.Errorf("%s %s: %v", network, address, err)
		return nil
	}
	r.Lab.Cleanup(func() { _ = c.Close() })
	got, err := AskSource(c)
	if err != nil || got != want {
		r.T.Errorf("%s %s: the endpoint sees %q, want %s: %v", network, address, got, want, err)
	}
	return c
}

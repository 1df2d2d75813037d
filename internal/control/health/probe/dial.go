package probe

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// dial connects. Later calls of the connection ignore ctx: the caller must end them. Closing a TCP
// connection resets it, so neither side keeps its port in TIME_WAIT for a minute. Reading more than
// maxRead bytes from a TCP connection fails.
func dial(ctx context.Context, network string, q Question) (net.Conn, error) {
	d := net.Dialer{
		LocalAddr: local(network, q.From),
		KeepAlive: -1,
		Control:   func(_, _ string, c syscall.RawConn) error { return control(c, q) },
	}
	c, err := d.DialContext(ctx, network, q.target().String())
	if err != nil {
		return nil, err
	}
	if t, ok := c.(*net.TCPConn); ok {
		err := t.SetLinger(0)
		if err == nil && q.ProxyHeader {
			_, err = t.Write(proxyLocal)
		}
		if err != nil {
			c.Close()
			return nil, err
		}
		return &bounded{c, maxRead}, nil
	}
	return c, nil
}

// proxyLocal is the header of PROXY protocol version 2 for a connection of the balancer itself: the
// command LOCAL, without addresses. Servers that demand a header refuse connections without.
var proxyLocal = []byte("\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00")

// maxRead bounds the bytes read from a connection: the searched text, and the overhead of TLS and
// HTTP/2.
const maxRead = 1 << 20

// bounded is a connection of an endpoint that may send meaningless data without end, as HTTP/2
// allows: reading until the timeout would cost a CPU.
type bounded struct {
	net.Conn
	left int
}

var errEndless = fmt.Errorf("no answer in the first %d bytes", maxRead)

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errEndless
	}
	n, err := b.Conn.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// local returns the source address for package net; nil: the kernel's choice.
func local(network string, from netip.Addr) net.Addr {
	switch {
	case !from.IsValid():
		return nil
	case network == "udp":
		return net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
	}
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
}

// control sets the options that a socket needs before it is bound.
func control(c syscall.RawConn, q Question) (err error) {
	if e := c.Control(func(fd uintptr) { err = options(int(fd), q) }); e != nil {
		return e
	}
	return err
}

func options(fd int, q Question) error {
	if q.From.IsValid() && q.Redirect == nil {
		if err := choosePort(fd); err != nil {
			return err
		}
	}
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return err
	}
	if q.Redirect != nil {
		if err := redirectToVIP(fd, kind, q); err != nil {
			return err
		}
	}
	if kind != unix.SOCK_DGRAM {
		return nil
	}
	return allErrors(fd, q.To.Addr().Is6())
}

// redirectedMSS is the largest segment that fits any link (RFC 8200) with two outer headers.
const redirectedMSS = 1280 - 2*(20+40)

// redirectToVIP redirects a socket's packets to a VIP. The socket's port is unique: it alone
// identifies answers from the VIP.
func redirectToVIP(fd, kind int, q Question) error {
	if err := q.Redirect(fd); err != nil {
		return fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	if kind == unix.SOCK_STREAM {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG, redirectedMSS); err != nil {
			return err
		}
	}
	if q.From.IsValid() {
		return nil // it is bound to that
	}
	from := netip.IPv4Unspecified()
	if q.Endpoint.Is6() {
		from = netip.IPv6Unspecified()
	}
	return unix.Bind(fd, sockaddr(netip.AddrPortFrom(from, 0)))
}

// choosePort delays the choice of the source port until connect, as without a source address: then
// sockets with different endpoints can share a port.
func choosePort(fd int) error {
	return unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
}

// allErrors makes a UDP socket receive the errors of routers, too, not only the endpoint's.
func allErrors(fd int, six bool) error {
	if six {
		return unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_RECVERR, 1)
	}
	return unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_RECVERR, 1)
}

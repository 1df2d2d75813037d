package probe

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// dial connects to the target of q. The context limits only the connecting: the caller must end
// later calls of the connection itself (see interrupt). Closing a TCP connection resets it, so
// neither side keeps its port in TIME_WAIT for a minute. Reading more than maxRead bytes from a TCP
// connection fails.
func dial(ctx context.Context, network string, spec Spec) (net.Conn, error) {
	d := net.Dialer{
		LocalAddr: local(network, spec.From),
		KeepAlive: -1,
		Control:   func(_, _ string, c syscall.RawConn) error { return control(c, spec) },
	}
	c, err := d.DialContext(ctx, network, spec.target().String())
	if err != nil {
		return nil, err
	}
	if t, ok := c.(*net.TCPConn); ok {
		err := t.SetLinger(0)
		if err == nil && spec.ProxyHeader {
			_, err = t.Write(proxyLocal)
		}
		if err != nil {
			c.Close()
			return nil, err
		}
		return &limitedConn{c, maxRead}, nil
	}
	return c, nil
}

// proxyLocal is the header of PROXY protocol version 2 for a connection of the balancer itself: the
// command LOCAL, without addresses. Servers that require a header refuse connections without one.
var proxyLocal = []byte("\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00")

// maxRead bounds the bytes read from a connection: the searched text, and the overhead of TLS and
// HTTP/2.
const maxRead = 1 << 20

// limitedConn is a connection from which only a limited number of bytes can be read. An endpoint
// may send meaningless data without end, as HTTP/2 allows: reading it until the timeout would keep
// a CPU busy.
type limitedConn struct {
	net.Conn
	left int
}

var errEndless = fmt.Errorf("no answer in the first %d bytes", maxRead)

func (b *limitedConn) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errEndless
	}
	n, err := b.Conn.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// local returns the source address in the form of package net; nil: the kernel's choice.
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
func control(c syscall.RawConn, spec Spec) (err error) {
	if e := c.Control(func(fd uintptr) { err = setOptions(int(fd), spec) }); e != nil {
		return e
	}
	return err
}

func setOptions(fd int, spec Spec) error {
	if spec.From.IsValid() && spec.Redirect == nil {
		if err := deferPortChoice(fd); err != nil {
			return err
		}
	}
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return err
	}
	if spec.Redirect != nil {
		if err := redirectToVIP(fd, kind, spec); err != nil {
			return err
		}
	}
	if kind != unix.SOCK_DGRAM {
		return nil
	}
	return receiveICMPErrors(fd, spec.To.Addr().Is6())
}

// redirectedMSS is the size of the largest segment that fits each link (RFC 8200) with two outer
// headers.
const redirectedMSS = 1280 - 2*(20+40)

// redirectToVIP redirects a socket's packets to a VIP. The socket's port is unique: it alone
// identifies answers from the VIP.
func redirectToVIP(fd, kind int, spec Spec) error {
	if err := spec.Redirect(fd); err != nil {
		return fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	if kind == unix.SOCK_STREAM {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG, redirectedMSS); err != nil {
			return err
		}
	}
	if spec.From.IsValid() {
		return nil // the caller binds the socket to that address
	}
	from := netip.IPv4Unspecified()
	if spec.Endpoint.Is6() {
		from = netip.IPv6Unspecified()
	}
	return unix.Bind(fd, sockaddr(netip.AddrPortFrom(from, 0)))
}

// deferPortChoice delays the choice of the source port until connect, as if the socket had no
// source address, so sockets with different endpoints can share a port.
func deferPortChoice(fd int) error {
	return unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
}

// receiveICMPErrors makes a UDP socket receive the ICMP errors of routers too, not only the
// endpoint's.
func receiveICMPErrors(fd int, six bool) error {
	if six {
		return unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_RECVERR, 1)
	}
	return unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_RECVERR, 1)
}

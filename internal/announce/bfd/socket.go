package bfd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Ports and TTL of RFC 5881 and 5883.
const (
	singleHopPort = 3784
	multihopPort  = 4784
	firstSource   = 49152
	sourcePorts   = 1<<16 - firstSource
	maxTTL        = 255
	networkClass  = 0xc0 // DSCP CS6, network control
	sourceTries   = 16
)

// sockets are the sockets of one session.
type sockets struct {
	in, out *net.UDPConn
	local   netip.Addr
	remote  netip.Addr // with the number of its interface as zone
	buffer  [maxPayload]byte
	control [128]byte
}

// open opens the sockets of a session.
//
// Sessions share the port with each other and with other speakers on this machine: gobgp listens on
// all addresses. The receiving socket is bound to the local address and connected to the peer's
// address, without a port. The kernel prefers the most specific socket, so this one gets the
// packets of this peer, and other speakers get all others.
func open(c *Config) (*sockets, error) {
	remote, err := withZoneIndex(c.Remote)
	if err != nil {
		return nil, err
	}
	local := c.Source
	if !local.IsValid() {
		if local, err = sourceTo(remote); err != nil {
			return nil, fmt.Errorf("no route to %s: %w", c.Remote, err)
		}
	}
	if local, err = withZoneIndex(local); err != nil {
		return nil, err
	}
	s := &sockets{local: local.WithZone(c.Remote.Zone()), remote: remote}
	if s.in, err = receiver(local, remote, c.port()); err != nil {
		return nil, fmt.Errorf("receive at %s: %w", netip.AddrPortFrom(s.local, c.port()), cause(err))
	}
	if s.out, err = sender(local, netip.AddrPortFrom(remote, c.port())); err != nil {
		return nil, errors.Join(fmt.Errorf("send from %s to %s: %w", s.local, c.Remote, cause(err)), s.in.Close())
	}
	return s, nil
}

// withZoneIndex returns an address with the number of its interface as zone, if it has one. The
// package net keeps the numbers of names for a minute, so sockets would be bound to an interface
// that is gone.
func withZoneIndex(a netip.Addr) (netip.Addr, error) {
	if _, err := strconv.Atoi(a.Zone()); a.Zone() == "" || err == nil {
		return a, nil
	}
	link, err := net.InterfaceByName(a.Zone())
	if err != nil {
		return a, fmt.Errorf("interface of %s: %w", a, err)
	}
	return a.WithZone(strconv.Itoa(link.Index)), nil
}

func (s *sockets) close() error { return errors.Join(s.in.Close(), s.out.Close()) }

// sourceTo returns the address from which this machine sends to another one, with its zone.
func sourceTo(remote netip.Addr) (netip.Addr, error) {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(remote, singleHopPort)))
	if err != nil {
		return netip.Addr{}, cause(err)
	}
	defer c.Close()                                                 //nolint:errcheck // nothing was sent
	local := c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap() //nolint:forcetypeassert // of a UDPConn
	if local.IsLinkLocalUnicast() {
		local = local.WithZone(remote.Zone())
	}
	return local, nil
}

func receiver(local, remote netip.Addr, port uint16) (*net.UDPConn, error) {
	level, option := unix.IPPROTO_IP, unix.IP_RECVTTL
	if remote.Is6() {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT
	}
	config := net.ListenConfig{Control: control(func(fd int) error {
		return errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
			unix.SetsockoptInt(fd, level, option, 1),
		)
	})}
	l, err := config.ListenPacket(context.Background(), "udp", netip.AddrPortFrom(local, port).String())
	if err != nil {
		return nil, err
	}
	c := l.(*net.UDPConn) //nolint:forcetypeassert // of a UDP network
	raw, err := c.SyscallConn()
	if err == nil {
		err = control(func(fd int) error { return unix.Connect(fd, anyPort(remote)) })("", "", raw)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// anyPort returns the address of a peer whose port is not known yet.
func anyPort(a netip.Addr) unix.Sockaddr {
	if a.Is4() {
		return &unix.SockaddrInet4{Addr: a.As4()}
	}
	to := &unix.SockaddrInet6{Addr: a.As16()}
	if index, err := strconv.ParseUint(a.Zone(), 10, 32); err == nil {
		to.ZoneId = uint32(index)
	}
	return to
}

func sender(local netip.Addr, to netip.AddrPort) (c *net.UDPConn, err error) {
	ttl := func(fd int) error {
		if to.Addr().Is6() {
			return errors.Join(
				unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, maxTTL),
				unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_TCLASS, networkClass),
			)
		}
		return errors.Join(
			unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TTL, maxTTL),
			unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TOS, networkClass),
		)
	}
	for range sourceTries {
		from := netip.AddrPortFrom(local, uint16(firstSource+rand.IntN(sourcePorts)))
		dialer := net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(from), Control: control(ttl)}
		var conn net.Conn
		conn, err = dialer.Dial("udp", to.String())
		if err == nil {
			return conn.(*net.UDPConn), nil //nolint:forcetypeassert // of a UDP network
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return nil, err
}

// control returns f as the Control of a dialer or listener.
func control(f func(fd int) error) func(_, _ string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) { failed = f(int(fd)) })
		return errors.Join(err, failed)
	}
}

// read reads a datagram of the peer, and its TTL. The result is valid until the next call.
func (s *sockets) read() (data []byte, from netip.AddrPort, ttl int, err error) {
	n, size, _, from, err := s.in.ReadMsgUDPAddrPort(s.buffer[:], s.control[:])
	if err != nil {
		return nil, from, 0, err
	}
	messages, err := unix.ParseSocketControlMessage(s.control[:size])
	if err != nil {
		return nil, from, 0, err
	}
	for _, m := range messages {
		ipv4 := m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_TTL
		ipv6 := m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_HOPLIMIT
		if (ipv4 || ipv6) && len(m.Data) >= 4 {
			ttl = int(binary.NativeEndian.Uint32(m.Data))
		}
	}
	return s.buffer[:n], netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), ttl, nil
}

// cause returns the reason of a network error without the addresses.
func cause(err error) error {
	var number syscall.Errno
	if errors.As(err, &number) {
		return number
	}
	return err
}

// readable reports whether a datagram waits.
func (s *sockets) readable() bool {
	raw, err := s.in.SyscallConn()
	if err != nil {
		return false
	}
	n := 0
	err = raw.Control(func(fd uintptr) {
		n, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0) // an error: none does
	})
	return err == nil && n > 0
}

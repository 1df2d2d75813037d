package netdev

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"loxilb/test/netnstest"
)

// forwarding returns the host's forwarding settings: of all, lo and eth0, IPv4 then IPv6.
func forwarding(t *testing.T, h *netnstest.Host) string {
	t.Helper()
	return strings.Join(strings.Fields(run(t, h, "sysctl", "-n",
		"net.ipv4.conf.all.forwarding", "net.ipv4.conf.lo.forwarding", "net.ipv4.conf.eth0.forwarding",
		"net.ipv6.conf.all.forwarding", "net.ipv6.conf.lo.forwarding", "net.ipv6.conf.eth0.forwarding")), "")
}

func TestForwardingFromLo(t *testing.T) {
	t.Parallel()
	a, _ := pair(t)
	runHost(t, a)
	is := func(want string) {
		t.Helper()
		eventually(t, func() error {
			if got := forwarding(t, a); got != want {
				return fmt.Errorf("forwarding is %s, want %s", got, want)
			}
			return nil
		})
	}
	is("010010") // only that of lo
	run(t, a, "sysctl", "-w", "net.ipv4.ip_forward=1")
	is("111010")
	run(t, a, "sysctl", "-w", "net.ipv4.ip_forward=0")
	is("010010")
	run(t, a, "sysctl", "-w", "net.ipv6.conf.all.forwarding=0")
	is("010010")
	run(t, a, "sysctl", "-w", "net.ipv6.conf.lo.forwarding=0", "net.ipv4.conf.lo.forwarding=0")
	is("010010")
}

// TestAdvertisedRouteStays checks that a machine with an IPv6 default route from a router
// advertisement keeps it.
func TestAdvertisedRouteStays(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	run(t, b, "ip", "addr", "add", "fe80::b/64", "dev", "eth0", "nodad")
	route := func() string { return run(t, a, "ip", "-6", "route", "show", "default") }
	eventually(t, func() error {
		if err := b.Do(func() error { return advertise("eth0") }); err != nil {
			return err
		}
		if out := route(); !strings.Contains(out, "proto ra") {
			return fmt.Errorf("no default route yet: %q", out)
		}
		return nil
	})
	runHost(t, a)
	eventually(t, func() error {
		if got := forwarding(t, a); got != "010010" {
			return fmt.Errorf("forwarding is %s", got)
		}
		return nil
	})
	if out := route(); !strings.Contains(out, "proto ra") {
		t.Errorf("the default route is gone: %q", out)
	}
	if out := run(t, a, "sysctl", "-n", "net.ipv6.conf.eth0.accept_ra"); strings.TrimSpace(out) != "1" {
		t.Errorf("accept_ra is %s", out)
	}
}

// advertise sends a router advertisement with a lifetime of 1800 s.
func advertise(name string) error {
	l, err := net.InterfaceByName(name)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMPV6)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 255); err != nil {
		return err
	}
	from := &unix.SockaddrInet6{Addr: netip.MustParseAddr("fe80::b").As16(), ZoneId: uint32(l.Index)}
	if err := unix.Bind(fd, from); err != nil {
		return err
	}
	m := make([]byte, 16)
	m[0], m[4] = 134, 64
	binary.BigEndian.PutUint16(m[6:], 1800)
	return unix.Sendto(fd, m, 0, &unix.SockaddrInet6{Addr: netip.MustParseAddr("ff02::1").As16(), ZoneId: uint32(l.Index)})
}

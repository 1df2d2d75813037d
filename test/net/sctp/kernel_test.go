package sctp_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// Socket options of linux/sctp.h.
const (
	sctpNoDelay  = 3
	sctpBindxAdd = 100
)

// The client's paths: each link leads to one VIP.
const (
	firstAddress, secondAddress = "100.100.100.1", "100.100.101.1"
	firstVIP, secondVIP         = "20.20.22.1", "20.20.23.1"
)

// TestKernel checks the kernel's own SCTP, which the guests of test/kernels have: messages in both
// directions with each kind of translation, an association with two addresses at both ends whose
// links fail in turn, restarts of both kinds of associations, and SHUTDOWN, which closes
// associations.
func TestKernel(t *testing.T) {
	if _, err := os.Stat("/proc/sys/net/sctp"); err != nil {
		t.Skip("this kernel has no SCTP")
	}
	r := rig.New(t, rig.Options{Before: setUpPaths})
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(r.Command("get", "drops"))
			t.Log(r.Command("get", "ct"))
		}
	})
	var accepted atomic.Int64
	for _, h := range r.Endpoints {
		serveKernel(t, h, &accepted)
	}
	loadPrograms(t, r)
	createTranslations(r)
	for i, s := range translations() {
		if s.vip == rig.VIP4 && s.endpoints == rig.Endpoints6() {
			shortenPackets(t, r) // translations between IP versions come last
		}
		from := rig.HostAddress(r.Client, s.vip == rig.VIP6)
		if s.flags == "" {
			from = map[string]string{rig.VIP4: "0.0.0.0", rig.VIP6: "::"}[s.vip] // INIT lists all addresses
		}
		c := dialKernel(t, r.Client, s.vip, 2020+i, from)
		exchange(t, c)
		c = restartAssociation(t, r, &accepted, c, s.vip, 2020+i, from)
		shutDown(t, c)
	}
	r.EventuallyShows("get ct", "sctp", "shut-complete")

	r.Loxicmd("create lb %s --sctp=2020:%d --secips=%s --mode=fullnat --endpoints=%s",
		firstVIP, port, secondVIP, rig.Endpoints4())
	c := dialKernel(t, r.Client, firstVIP, 2020, firstAddress, secondAddress)
	exchange(t, c)
	r.EventuallyShows("get drops", "unproven-address") // HEARTBEATs over the second path
	for _, link := range []string{"client", "other"} {
		setLink(t, r.LB, link, false)
		exchange(t, c)
		setLink(t, r.LB, link, true)
	}
	// The balancer hides an address that the client adds: answers to it would bypass the balancer.
	addAddresses(t, c, "100.100.100.9")
	exchange(t, c)

	for range 2 {
		setLink(t, r.LB, "client", false)
		exchange(t, c)
		setLink(t, r.LB, "client", true)
		c = restartAssociation(t, r, &accepted, c, firstVIP, 2020, firstAddress, secondAddress)
	}
	shutDown(t, c)
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		out := r.Loxicmd("get ct --proto=sctp --no-headers")
		if closed := strings.Count(out, " shut-complete "); closed == 0 || closed != strings.Count(out, "\n") {
			return fmt.Errorf("associations are open:\n%s", out)
		}
		return nil
	})
}

// loadPrograms waits until the SCTP programs are loaded. An emulated kernel 6.1 takes half a minute
// to verify them, longer than the API waits.
func loadPrograms(t *testing.T, r *rig.Rig) {
	t.Helper()
	const vip = "20.20.21.1"
	_, err := r.Command("create", "lb", vip, "--sctp=1:1", "--endpoints=31.31.31.1:1")
	if err != nil && !strings.Contains(err.Error(), "not applied yet") {
		t.Fatal(err)
	}
	labtest.Eventually(t, 3*rig.StartPatience, func(context.Context) error {
		out, err := r.Command("get", "lb", "--state=applied")
		if err == nil && !strings.Contains(out, vip) {
			err = errors.New("the service is not applied")
		}
		return err
	})
}

// setUpPaths adds a second link to the client and a second address to endpoints. It configures
// short timeouts of SCTP, and enables ASCONF.
func setUpPaths(t testing.TB, s *netnstest.Standard) {
	t.Helper()
	here := netnstest.End{Host: s.Client, Interface: "eth1", Addresses: []netip.Prefix{rig.Prefix(secondAddress + "/24")}}
	there := netnstest.End{Host: s.LB, Interface: "other", Addresses: []netip.Prefix{rig.Prefix("100.100.101.254/24")}}
	errs := []error{
		s.Link(here, there, 0),
		s.Client.AddRoute(rig.Prefix(secondVIP+"/32"), netip.MustParseAddr("100.100.101.254")),
		s.Client.AddAddress("eth0", rig.Prefix("100.100.100.9/24")),
	}
	for i, h := range s.Endpoints {
		errs = append(errs, h.AddAddress("eth0", rig.Prefix(fmt.Sprintf("10.10.%d.1/24", i))))
	}
	settings := [][2]string{
		{"rto_min", "200"}, {"rto_initial", "500"}, {"rto_max", "1000"}, {"hb_interval", "300"},
		{"auth_enable", "1"}, {"addip_enable", "1"},
	}
	for _, h := range append(s.Endpoints[:], s.Client) {
		for _, setting := range settings {
			errs = append(errs, h.Sysctl("net/sctp/"+setting[0], setting[1]))
		}
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// kernelSocket opens a socket of the kernel's SCTP in a host, and calls f with it in the host's
// namespace. The socket can use a port that has associations in shutdown.
func kernelSocket(h *netnstest.Host, family int, f func(fd int) error) (file *os.File, err error) {
	err = h.Do(func() error {
		fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
		if err != nil {
			return err
		}
		file = os.NewFile(uintptr(fd), "sctp")
		limit := unix.NsecToTimeval(rig.Patience.Nanoseconds())
		return errors.Join(
			unix.SetsockoptInt(fd, unix.IPPROTO_SCTP, sctpNoDelay, 1),
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit),
			f(fd))
	})
	return file, err
}

// serveKernel starts an echo server that counts its associations.
func serveKernel(t *testing.T, h *netnstest.Host, accepted *atomic.Int64) {
	t.Helper()
	file, err := kernelSocket(h, unix.AF_INET6, func(fd int) error {
		return errors.Join(unix.Bind(fd, &unix.SockaddrInet6{Port: port}), unix.Listen(fd, 16))
	})
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	listener, err := net.FileListener(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			go echo(c)
		}
	}()
}

func echo(c net.Conn) {
	defer c.Close()
	for b := make([]byte, 1<<16); ; {
		n, err := c.Read(b)
		if err == nil {
			_, err = c.Write(b[:n])
		}
		if err != nil {
			return
		}
	}
}

// dialKernel opens an association from the given addresses.
func dialKernel(t *testing.T, h *netnstest.Host, vip string, port int, from ...string) net.Conn {
	t.Helper()
	return associate(t, h, vip, port, func() error { return nil }, from...)
}

// associate opens an association, and calls sent after the first INIT was sent.
func associate(t *testing.T, h *netnstest.Host, vip string, port int, sent func() error, from ...string) net.Conn {
	t.Helper()
	to, family := netip.MustParseAddr(vip), unix.AF_INET
	address := unix.Sockaddr(&unix.SockaddrInet4{Port: port, Addr: [4]byte(to.AsSlice())})
	if to.Is6() {
		family, address = unix.AF_INET6, &unix.SockaddrInet6{Port: port, Addr: to.As16()}
	}
	file, err := kernelSocket(h, family, func(fd int) error {
		for _, a := range from {
			if err := bindx(fd, a); err != nil {
				return err
			}
		}
		if err := errors.Join(unix.SetNonblock(fd, true), unix.Connect(fd, address)); !errors.Is(err, unix.EINPROGRESS) {
			return err
		}
		return errors.Join(sent(), awaitConnected(fd))
	})
	if err != nil {
		t.Fatalf("associate with %s:%d: %v", vip, port, err)
	}
	defer file.Close()
	c, err := net.FileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// awaitConnected waits until a socket is connected.
func awaitConnected(fd int) error {
	for end := time.Now().Add(rig.Patience); time.Now().Before(end); {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 1000)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if n == 1 {
			code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
			if code != 0 {
				err = unix.Errno(code)
			}
			return err
		}
	}
	return os.ErrDeadlineExceeded
}

// clientPort is the port of all clients: an association restarts only from the same port.
const clientPort = 4000

// bindx binds a socket to an additional address.
func bindx(fd int, address string) error {
	a := netip.MustParseAddr(address)
	family, flow, rest := unix.AF_INET, 0, 8
	if a.Is6() {
		family, flow, rest = unix.AF_INET6, 4, 4
	}
	raw := binary.NativeEndian.AppendUint16(nil, uint16(family)) // sockaddr_in or sockaddr_in6
	raw = binary.BigEndian.AppendUint16(raw, clientPort)
	raw = append(append(raw, make([]byte, flow)...), a.AsSlice()...)
	return unix.SetsockoptString(fd, unix.IPPROTO_SCTP, sctpBindxAdd, string(append(raw, make([]byte, rest)...)))
}

// addAddresses binds an association to more addresses.
func addAddresses(t *testing.T, c net.Conn, addresses ...string) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		control := raw.Control(func(fd uintptr) { err = bindx(int(fd), a) })
		if err := errors.Join(control, err); err != nil {
			t.Fatal(err)
		}
	}
}

// exchange sends messages of several lengths, and checks that each comes back. The largest one
// needs many packets.
func exchange(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(2 * rig.Patience)); err != nil {
		t.Fatal(err)
	}
	for _, length := range []int{1, 1000, 60000, 3} {
		sent, got := bytes.Repeat([]byte{byte(length), 'a', 'b'}, length)[:length], make([]byte, length)
		_, err := c.Write(sent)
		if err == nil {
			_, err = io.ReadFull(c, got)
		}
		if err != nil {
			t.Fatalf("%v: a message of %d bytes: %v", c.RemoteAddr(), length, err)
		}
		if !bytes.Equal(got, sent) {
			t.Fatalf("%v: a message of %d bytes comes back changed", c.RemoteAddr(), length)
		}
	}
}

// shutDown ends an association by SHUTDOWN.
func shutDown(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

// shortenPackets reduces the size of packets, so they fit after translation from IPv4 to IPv6
// (docs/sctp.md).
func shortenPackets(t *testing.T, r *rig.Rig) {
	t.Helper()
	for _, h := range append(r.Endpoints[:], r.Client) {
		link, err := h.Netlink().LinkByName("eth0")
		if err == nil {
			err = h.Netlink().LinkSetMTU(link, 1480)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func setLink(t *testing.T, h *netnstest.Host, name string, up bool) {
	t.Helper()
	link, err := h.Netlink().LinkByName(name)
	if err == nil && up {
		err = h.Netlink().LinkSetUp(link)
	} else if err == nil {
		err = h.Netlink().LinkSetDown(link)
	}
	if err != nil {
		t.Fatal(err)
	}
}

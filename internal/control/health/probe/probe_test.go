package probe

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"loxilb/internal/lb"
	"loxilb/test/netnstest/labtest"
)

func TestMain(m *testing.M) { os.Exit(labtest.OwnNetwork(m)) }

var loopbacks = []string{"127.0.0.1", "::1"}

// testFiles reads files of the temporary folder.
var testFiles = Files{Dir: os.TempDir(), Log: slog.New(slog.DiscardHandler)}

// bothVersions runs a test over both IP versions.
func bothVersions(t *testing.T, f func(t *testing.T, loopback netip.Addr)) {
	t.Parallel()
	for _, l := range loopbacks {
		t.Run(l, func(t *testing.T) {
			t.Parallel()
			f(t, netip.MustParseAddr(l))
		})
	}
}

// probeOnce probes once, as a Monitor does.
func probeOnce(t *testing.T, spec Spec) (Answer, error) {
	t.Helper()
	if spec.Probe.Timeout == 0 {
		spec.Probe.Timeout = 10 * time.Second
	}
	var shared Sockets
	defer shared.Close()
	ctx, cancel := context.WithTimeout(t.Context(), spec.Probe.Timeout)
	defer cancel()
	began := time.Now()
	a, err := New(spec, &shared, testFiles).Probe(ctx)
	if took := time.Since(began); took > spec.Probe.Timeout+5*time.Second {
		t.Errorf("the probe took %v, and its timeout is %v", took, spec.Probe.Timeout)
	}
	return a, err
}

// wantAnswer checks that a probe succeeds with this answer.
func wantAnswer(t *testing.T, spec Spec, want string) {
	t.Helper()
	a, err := probeOnce(t, spec)
	if err != nil || a.What != want || a.Delay <= 0 {
		t.Errorf("%q after %v, %v; want %q", a.What, a.Delay, err, want)
	}
}

// wantError checks that a probe fails with this error.
func wantError(t *testing.T, spec Spec, want string) {
	t.Helper()
	a, err := probeOnce(t, spec)
	switch {
	case err == nil:
		t.Errorf("the probe succeeds with %q, want the error %q", a.What, want)
	case err.Error() != want:
		t.Errorf("the probe fails with %q, want %q", err, want)
	case errors.Is(err, ErrNotSent) != strings.HasPrefix(want, ErrNotSent.Error()):
		t.Errorf("error %q counts as the fault of this machine: %v", err, errors.Is(err, ErrNotSent))
	}
}

// serve listens on TCP, handles each connection by f, and returns the address.
func serve(t *testing.T, loopback netip.Addr, f func(net.Conn)) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", netip.AddrPortFrom(loopback, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				f(c)
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// hold keeps a connection open until the other side closes it.
func hold(c net.Conn) { io.Copy(io.Discard, c) }

// drip sends text byte by byte until the other side closes.
func drip(c net.Conn, text string) {
	for i := 0; ; i++ {
		if _, err := c.Write([]byte{text[i%len(text)]}); err != nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// flood sends data without end.
func flood(c net.Conn) {
	block := make([]byte, 1<<20)
	for {
		if _, err := c.Write(block); err != nil {
			return
		}
	}
}

// closedPort returns an address without a listener.
func closedPort(loopback netip.Addr) netip.AddrPort { return netip.AddrPortFrom(loopback, 1) }

// unansweringPort returns an address that answers no SYN, as its backlog is full.
func unansweringPort(t *testing.T, loopback netip.Addr) netip.AddrPort {
	t.Helper()
	family := unix.AF_INET
	if loopback.Is6() {
		family = unix.AF_INET6
	}
	open := func() int {
		fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	l := open()
	if err := errors.Join(unix.Bind(l, sockaddr(netip.AddrPortFrom(loopback, 0))), unix.Listen(l, 0)); err != nil {
		t.Fatal(err)
	}
	where, err := unix.Getsockname(l)
	if err != nil {
		t.Fatal(err)
	}
	var port int
	switch w := where.(type) {
	case *unix.SockaddrInet4:
		port = w.Port
	case *unix.SockaddrInet6:
		port = w.Port
	}
	a := netip.AddrPortFrom(loopback, uint16(port))
	for range 3 {
		if err := unix.Connect(open(), sockaddr(a)); err != nil && !errors.Is(err, unix.EINPROGRESS) {
			t.Fatalf("got %v, want no error or unix.EINPROGRESS", err)
		}
	}
	return a
}

// silentAddresses returns addresses that never answer: packets to them leave by a veth device whose
// peer has no address.
func silentAddresses(t *testing.T) (out []netip.AddrPort) {
	t.Helper()
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "silent"}, PeerName: "end"}
	if err := netlink.LinkAdd(link); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { netlink.LinkDel(link) })
	for _, name := range []string{"silent", "end"} {
		l, err := netlink.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkSetUp(l); err != nil {
			t.Fatal(err)
		}
	}
	for _, network := range []string{"198.51.100.1/24", "2001:db8:51::1/64"} {
		a, err := netlink.ParseAddr(network)
		if err != nil {
			t.Fatal(err)
		}
		a.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(link, a); err != nil {
			t.Fatal(err)
		}
		to := netip.MustParsePrefix(network).Addr().Next()
		neighbour := &netlink.Neigh{LinkIndex: link.Index, State: netlink.NUD_PERMANENT, IP: to.AsSlice(), HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 1}}
		if err := netlink.NeighSet(neighbour); err != nil {
			t.Fatal(err)
		}
		out = append(out, netip.AddrPortFrom(to, 80))
	}
	return out
}

// TestUnknownType checks that an unknown type of probe gives no evidence about the endpoint.
func TestUnknownType(t *testing.T) {
	t.Parallel()
	wantError(t, Spec{Probe: lb.Probe{Type: lb.ProbeAuto}}, "cannot be probed: no probe of type auto")
}

// TestStream checks that the expected text is found anywhere in the answer.
func TestStream(t *testing.T) {
	bothVersions(t, func(t *testing.T, loopback netip.Addr) {
		spec := Spec{Probe: lb.Probe{Type: lb.ProbeTCP, Request: "PING\r\n", Response: "PONG"}}
		spec.To = serve(t, loopback, func(c net.Conn) {
			if line, err := bufio.NewReader(c).ReadString('\n'); err == nil {
				io.WriteString(c, strings.Repeat(".", chunk-2)+strings.Replace(line, "I", "O", 1))
			}
			hold(c)
		})
		wantAnswer(t, spec, "answered")
		spec.Probe.Response = ""
		wantAnswer(t, spec, "answered")
		spec.Probe.Response, spec.Probe.Timeout = "PANG", time.Second
		wantError(t, spec, `no answer within 1s after 4100 bytes without "PANG"`)
		spec.To = closedPort(loopback)
		wantError(t, spec, "connection refused")
		spec.To, spec.Probe.Timeout = unansweringPort(t, loopback), 300*time.Millisecond
		wantError(t, spec, "no answer within 300ms")
	})
}

// TestBanner checks a server that sends first, without a request.
func TestBanner(t *testing.T) {
	bothVersions(t, func(t *testing.T, loopback netip.Addr) {
		spec := Spec{Probe: lb.Probe{Type: lb.ProbeTCP, Response: "SSH-2.0"}}
		spec.To = serve(t, loopback, func(c net.Conn) { io.WriteString(c, "SSH-2.0-x\r\n") })
		wantAnswer(t, spec, "answered")
	})
}

// TestStreamAttacks checks that a probe ends with a reason, whatever an endpoint does.
func TestStreamAttacks(t *testing.T) {
	bothVersions(t, func(t *testing.T, loopback netip.Addr) {
		for name, attack := range map[string]struct {
			f    func(net.Conn)
			want string
		}{
			"byte by byte": {func(c net.Conn) { drip(c, "PON") }, ` without "PONG"`},
			"without end":  {flood, `no "PONG" in the first 65536 bytes of the answer`},
			"silence":      {hold, "no answer within 500ms"},
			"closes":       {func(c net.Conn) { c.Read(make([]byte, 100)) }, `closed without an answer`},
			"resets":       {func(c net.Conn) { c.(*net.TCPConn).SetLinger(0) }, "connection reset by peer"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				spec := Spec{To: serve(t, loopback, attack.f), Probe: lb.Probe{Type: lb.ProbeTCP, Request: "PING", Response: "PONG", Timeout: 500 * time.Millisecond}}
				a, err := probeOnce(t, spec)
				if err == nil || !strings.HasSuffix(err.Error(), attack.want) {
					t.Errorf("%q, %v; want %q", a.What, err, attack.want)
				}
			})
		}
	})
}

package modes_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// hostAddresses has addresses of one IP version for tests of processes on the load balancer's host.
type hostAddresses struct {
	vip, any        string
	endpoints, none string    // --endpoints with weight, and all with weight 0
	towards         [3]string // the host's own addresses towards the endpoints
}

func allHostAddresses() []hostAddresses {
	return []hostAddresses{
		{rig.VIP4, "0.0.0.0:0", rig.Endpoints4(), rig.Endpoints4(0, 0, 0), [3]string{"31.31.31.254", "32.32.32.254", "17.17.17.254"}},
		{rig.VIP6, "[::]:0", rig.Endpoints6(), rig.Endpoints6(0, 0, 0), [3]string{"2001:db8:31::fe", "2001:db8:32::fe", "2001:db8:17::fe"}},
	}
}

// TestOwnHost checks that processes on the load balancer's own host reach VIPs over TCP and UDP and
// see the VIP as their peer, and that endpoints see the host.
func TestOwnHost(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	rig.ServeSources(r)
	for _, f := range allHostAddresses() {
		for _, network := range []string{"tcp", "udp"} {
			r.Loxicmd("create lb %s --%s=80:7000 --endpoints=%s", f.vip, network, f.endpoints)
			for i := range 6 {
				c := r.WantSource(r.LB, network, rig.Join(f.vip, 80), f.towards[i%3])
				if c == nil {
					continue
				}
				if got := c.RemoteAddr().String(); got != rig.Join(f.vip, 80) {
					t.Errorf("%s: the peer's name is %s, want the VIP", network, got)
				}
				if got := peerName(t, c); got != rig.Join(f.vip, 80) {
					t.Errorf("%s: getpeername returns %s, want the VIP", network, got)
				}
			}
		}
	}
}

// TestOwnHostOtherFamily checks that a connected IPv6 socket of the host reaches IPv4 endpoints
// behind an IPv6 VIP. An IPv4 socket cannot reach an IPv6 endpoint, and gets an error.
func TestOwnHostOtherFamily(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	rig.ServeSources(r)
	for _, network := range []string{"tcp", "udp"} {
		r.Loxicmd("create lb %s --%s=80:7000 --endpoints=31.31.31.1:1", rig.VIP6, network)
		c := r.WantSource(r.LB, network, rig.Join(rig.VIP6, 80), "31.31.31.254")
		if got := peerName(t, c); got != rig.Join(rig.VIP6, 80) {
			t.Errorf("%s: getpeername says %s, want the VIP", network, got)
		}
		r.Loxicmd("create lb %s --%s=80:7000 --endpoints=[2001:db8:31::1]:1", rig.VIP4, network)
		if _, err := r.LB.DialContext(t.Context(), network, rig.Join(rig.VIP4, 80)); !errors.Is(err, syscall.ENETUNREACH) {
			t.Errorf("%s: %v, want network unreachable", network, err)
		}
	}
}

// peerName returns the kernel's address of the other end of a connection.
func peerName(t *testing.T, c net.Conn) string {
	t.Helper()
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var name syscall.Sockaddr
	var named error
	if err := raw.Control(func(fd uintptr) { name, named = syscall.Getpeername(int(fd)) }); err != nil || named != nil {
		t.Fatalf("got %v %v, want no error, named == nil", err, named)
	}
	switch a := name.(type) {
	case *syscall.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)).String()
	case *syscall.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port)).String()
	}
	return fmt.Sprint(name)
}

// TestOwnHostDatagrams checks that datagrams of an unconnected socket to the VIP go to one
// endpoint, and that their replies come from the VIP. Different sockets use different endpoints.
func TestOwnHostDatagrams(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	rig.ServeSources(r)
	for _, f := range allHostAddresses() {
		r.Loxicmd("create lb %s --udp=80:7000 --endpoints=%s", f.vip, f.endpoints)
		for i := range 6 {
			p, err := r.LB.ListenPacket("udp", f.any)
			if err != nil {
				t.Fatal(err)
			}
			r.Lab.Cleanup(func() { _ = p.Close() })
			for range 3 {
				got, from := askDatagram(t, p, rig.Join(f.vip, 80))
				if host, _, _ := net.SplitHostPort(got); host != f.towards[i%3] {
					t.Errorf("%s: the endpoint sees %s, want %s", f.vip, got, f.towards[i%3])
				}
				if from != rig.Join(f.vip, 80) {
					t.Errorf("the answer is from %s, want %s", from, rig.Join(f.vip, 80))
				}
			}
		}
	}
}

// TestOwnHostDatagramsMove checks that the next datagram of an unconnected socket goes to another
// endpoint after the socket's endpoint was detected as down. The socket keeps the other endpoint
// when the first one returns. While no endpoint is up, the socket keeps its endpoint.
//
// P39
func TestOwnHostDatagramsMove(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	rig.ServeSources(r)
	for _, f := range allHostAddresses() {
		r.Loxicmd("create lb %s --udp=80:7000 --endpoints=%s --monitor --probetype=ping", f.vip, f.endpoints)
		p, err := r.LB.ListenPacket("udp", f.any)
		if err != nil {
			t.Fatal(err)
		}
		r.Lab.Cleanup(func() { _ = p.Close() })
		seenBy := func() int {
			t.Helper()
			got, _ := askDatagram(t, p, rig.Join(f.vip, 80))
			host, _, _ := net.SplitHostPort(got)
			return slices.Index(f.towards[:], host)
		}
		address := func(i int) string {
			n := netnstest.StandardNetworks()[1+i]
			if strings.Contains(f.vip, ":") {
				return n.V6.Addr().String()
			}
			return n.V4.Addr().String()
		}
		before := seenBy()
		r.ReportHostState(address(before), "red")
		after := before
		labtest.Eventually(t, rig.Patience, func(context.Context) error {
			if after = seenBy(); after == before {
				return fmt.Errorf("%s answers", address(before))
			}
			return nil
		})
		r.ReportHostState(address(before), "green")
		r.EventuallyShows("get ep", address(before)+" ", " up ")
		if again := seenBy(); again != after {
			t.Errorf("after the return of %s, datagrams go to %s, want %s", address(before), address(again), address(after))
		}
		for i := range f.towards {
			r.ReportHostState(address(i), "red")
		}
		if seenBy() < 0 {
			t.Errorf("no endpoint answers")
		}
	}
}

// askDatagram sends one datagram to an address, and returns the reply and its source.
func askDatagram(t *testing.T, p net.PacketConn, to string) (answer, from string) {
	t.Helper()
	for range 3 {
		if _, err := p.WriteTo([]byte("who am I?"), net.UDPAddrFromAddrPort(netip.MustParseAddrPort(to))); err != nil {
			t.Fatal(err)
		}
		if err := p.SetReadDeadline(time.Now().Add(2 * time.Second)); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 64)
		n, a, err := p.ReadFrom(buf)
		if err == nil {
			at := a.(*net.UDPAddr).AddrPort()
			return string(buf[:n]), netip.AddrPortFrom(at.Addr().Unmap(), at.Port()).String()
		}
	}
	t.Fatalf("%s does not answer", to)
	return "", ""
}

// TestOwnHostCounts checks that the host's connections count until their sockets are closed, also
// for algorithm lc and weights.
func TestOwnHostCounts(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	rig.ServeEcho(r)
	r.Loxicmd("create lb %s --tcp=80:7 --select=lc --endpoints=%s", rig.VIP4, rig.Endpoints4())
	service := rig.Join(rig.VIP4, 80) + "/tcp"
	var conns []net.Conn
	for range 6 {
		c := dialFromHost(r, rig.Join(rig.VIP4, 80))
		if err := rig.Exchange(c, "hello"); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	r.WantActive(service, 2, 2, 2)
	for _, c := range conns {
		_ = c.Close()
	}
	r.WantActive(service, 0, 0, 0)
	r.Loxicmd("create lb %s --tcp=81:7 --select=priority --endpoints=%s", rig.VIP4, rig.Endpoints4(3, 2, 1))
	for range 12 {
		dialFromHost(r, rig.Join(rig.VIP4, 81))
	}
	r.WantActive(rig.Join(rig.VIP4, 81)+"/tcp", 6, 4, 2)
	r.Loxicmd("create lb %s --tcp=82:7 --select=persist --endpoints=%s", rig.VIP4, rig.Endpoints4())
	seen := map[string]bool{}
	for range 6 {
		seen[dialFromHost(r, rig.Join(rig.VIP4, 82)).LocalAddr().(*net.TCPAddr).IP.String()] = true
	}
	if len(seen) != 1 {
		t.Errorf("with persist, the host uses other endpoints than %v", seen)
	}
}

// dialFromHost opens a TCP connection of the load balancer's host.
func dialFromHost(r *rig.Rig, address string) net.Conn {
	r.T.Helper()
	ctx, cancel := context.WithTimeout(r.T.Context(), rig.Patience)
	defer cancel()
	c, err := r.LB.DialContext(ctx, "tcp", address)
	if err != nil {
		r.T.Fatal(err)
	}
	r.Lab.Cleanup(func() { _ = c.Close() })
	return c
}

// TestOwnHostSocketsClosedMeanwhile checks the count of sockets that are closed while no program is
// attached, since a daemon runs with --localsockpolicy=false. The next daemon counts only open
// sockets.
func TestOwnHostSocketsClosedMeanwhile(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	rig.ServeEcho(r)
	r.Loxicmd("create lb %s --tcp=80:7 --endpoints=%s", rig.VIP4, rig.Endpoints4())
	service := rig.Join(rig.VIP4, 80) + "/tcp"
	var conns []net.Conn
	for range 6 {
		conns = append(conns, dialFromHost(r, rig.Join(rig.VIP4, 80)))
	}
	r.WantActive(service, 2, 2, 2)
	r.Stop()
	r.Daemon.SetArgs("--localsockpolicy=false")
	r.Restart()
	for _, c := range conns[:4] {
		_ = c.Close()
	}
	r.WantActive(service, 0, 1, 1)
	if err := rig.Exchange(conns[4], "hello"); err != nil {
		t.Error(err)
	}
}

// TestOwnHostRefused checks that a service without an endpoint immediately refuses the host's
// connections, as it does those of others.
//
// P12
func TestOwnHostRefused(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	for _, f := range allHostAddresses() {
		for _, network := range []string{"tcp", "udp"} {
			r.Loxicmd("create lb %s --%s=80:7000 --endpoints=%s", f.vip, network, f.none)
			begin := time.Now()
			c, err := r.LB.DialContext(t.Context(), network, rig.Join(f.vip, 80))
			if !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("%s to %s: %v, want connection refused", network, f.vip, err)
			}
			if took := time.Since(begin); took > time.Second {
				t.Errorf("refused after %s", took)
			}
			if err == nil {
				_ = c.Close()
			}
		}
	}
}

// TestOwnHostOthersUnchanged checks that connections of the machine's other namespaces, and to
// other addresses than VIPs, are not changed. The programs stay attached after the daemon ends. The
// next daemon adopts them, and --detach removes them.
func TestOwnHostOthersUnchanged(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	rig.ServeSources(r)
	r.Loxicmd("create lb %s --tcp=80:7000 --endpoints=31.31.31.1:1", rig.VIP4)
	r.WantSource(r.LB, "tcp", "31.31.31.1:7000", "31.31.31.254")
	if err := r.Client.AddAddress("lo", rig.Prefix(rig.VIP4+"/32")); err != nil {
		t.Fatal(err)
	}
	if c, err := r.Client.DialContext(t.Context(), "tcp", rig.Join(rig.VIP4, 80)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a VIP's address in another namespace: %v, %v; want connection refused by that namespace", c, err)
	}
	r.Stop()
	r.WantSource(r.LB, "tcp", rig.Join(rig.VIP4, 80), "31.31.31.254") // the programs are still attached
	r.Restart()
	r.WantSource(r.LB, "tcp", rig.Join(rig.VIP4, 80), "31.31.31.254")
	if err := r.DetachAll(); err != nil {
		t.Fatal(err)
	}
	if c, err := r.LB.DialContext(t.Context(), "tcp", rig.Join(rig.VIP4, 80)); err == nil {
		t.Errorf("%s leads to %s after --detach", rig.VIP4, c.RemoteAddr())
	}
}

// TestOwnHostDisabled checks that a daemon with --localsockpolicy=false does not change the host's
// sockets.
func TestOwnHostDisabled(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Args: []string{"--localsockpolicy=false"}})
	rig.ServeSources(r)
	r.Loxicmd("create lb %s --tcp=80:7000 --endpoints=31.31.31.1:1", rig.VIP4)
	labtest.Eventually(t, rig.Patience, func(ctx context.Context) error {
		if _, err := r.LB.DialContext(ctx, "tcp", rig.Join(rig.VIP4, 80)); !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("%w, want connection refused by the host", err)
		}
		return nil
	})
}

// TestDrainOwnHost checks that the status of a drained endpoint counts sockets of the load
// balancer's own host, and that they continue after the deadline. They have no rows in the
// connection table.
func TestDrainOwnHost(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	rig.ServeSources(r)
	const endpoint = "31.31.31.1:7000"
	r.Loxicmd("create lb %s --tcp=80:7000 --endpoints=31.31.31.1:1", rig.VIP4)
	own, other := r.WantSource(r.LB, "tcp", rig.Join(rig.VIP4, 80), "31.31.31.254"), r.WantSource(r.Client, "tcp", rig.Join(rig.VIP4, 80), "100.100.100.1")
	if own == nil || other == nil {
		t.FailNow()
	}
	r.Loxicmd("drain endpoint %s --deadline=1s", endpoint)
	if err := other.SetDeadline(time.Now().Add(rig.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("reading at the deadline gives %v, want a reset", err)
	}
	r.EventuallyShows("get drain", "| "+endpoint+" |           0 |           1 |")
	if _, err := rig.AskSource(own); err != nil {
		t.Errorf("after the deadline: %v", err)
	}
	if err := own.Close(); err != nil {
		t.Error(err)
	}
	r.EventuallyShows("get drain", "| "+endpoint+" |           0 |           0 |")
}

package connections_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
)

// wantRefused fails the test unless a connection or datagram to the address is refused immediately.
func wantRefused(r *rig.Rig, network, address string) {
	r.T.Helper()
	ctx, cancel := context.WithTimeout(r.T.Context(), rig.Patience)
	defer cancel()
	start := time.Now()
	c, err := r.Client.DialContext(ctx, network, address)
	if err == nil {
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(rig.Patience)); err != nil {
			r.T.Fatal(err)
		}
		if _, err = c.Write([]byte("hello")); err == nil {
			_, err = c.Read(make([]byte, 100))
		}
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		r.T.Errorf("%s %s: %v after %v, want connection refused", network, address, err, time.Since(start))
	}
}

// TestRefused checks that a client of a service without endpoints, or of a closed port of an
// endpoint, is refused immediately.
//
// P12 Clients of a service without endpoints are refused immediately
func TestRefused(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	for _, v := range []struct{ vip, none, all string }{
		{rig.VIP4, rig.Endpoints4(0, 0, 0), rig.Endpoints4()}, {rig.VIP6, rig.Endpoints6(0, 0, 0), rig.Endpoints6()},
	} {
		r.Loxicmd("create lb %s --tcp=80:5001 --udp=80:5001 --endpoints=%s", v.vip, v.none)
		r.Loxicmd("create lb %s --tcp=81:5999 --udp=81:5999 --endpoints=%s", v.vip, v.all)
		for _, port := range []int{80, 81} {
			wantRefused(r, "tcp", rig.Join(v.vip, port))
			wantRefused(r, "udp", rig.Join(v.vip, port))
		}
	}
	r.Loxicmd("create lb %s --tcp=82:5001 --refuse=drop --endpoints=%s", rig.VIP4, rig.Endpoints4(0, 0, 0))
	r.WantNoAnswer(rig.Join(rig.VIP4, 82))
}

// TestTimeExceeded checks that the balancer answers a packet whose TTL expires there.
func TestTimeExceeded(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	r.Loxicmd("create lb %s --udp=53:5353 --endpoints=%s", rig.VIP4, rig.Endpoints4())
	r.Loxicmd("create lb %s --udp=53:5353 --endpoints=%s", rig.VIP6, rig.Endpoints6())
	for _, vip := range []string{rig.VIP4, rig.VIP6} {
		c := rig.DialUDP(t, r, rig.Join(vip, 53)).(*net.UDPConn)
		raw, err := c.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var failed error
		err = raw.Control(func(fd uintptr) {
			if vip == rig.VIP4 {
				failed = errors.Join(unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TTL, 1),
					unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_RECVERR, 1))
				return
			}
			failed = errors.Join(unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, 1),
				unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1))
		})
		if err := errors.Join(err, failed); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		if err := c.SetReadDeadline(time.Now().Add(rig.Patience)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 100)); !errors.Is(err, unix.EHOSTUNREACH) {
			t.Errorf("%s: %v, want no route to host", vip, err)
		}
	}
}

// TestFragments checks that datagrams larger than the MTU of a link pass in both directions.
func TestFragments(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	for _, h := range r.Endpoints {
		if err := h.ServeUDPEcho(":5353"); err != nil {
			t.Fatal(err)
		}
	}
	r.Loxicmd("create lb %s --udp=53:5353 --endpoints=%s", rig.VIP4, rig.Endpoints4())
	r.Loxicmd("create lb %s --udp=53:5353 --endpoints=%s", rig.VIP6, rig.Endpoints6())
	for _, vip := range []string{rig.VIP4, rig.VIP6} {
		for i, size := range []int{1473, 8000, 60000, 2959} {
			c := rig.DialUDP(t, r, rig.Join(vip, 53))
			want := r.Endpoints[i%3].Name + ": " + strings.Repeat("x", size)
			if got, err := rig.Datagram(c, strings.Repeat("x", size)); err != nil || got != want {
				t.Errorf("%s size %d: got %d bytes, want %d: %v", vip, size, len(got), len(want), err)
			}
		}
	}
}

// TestPathMTU transfers data (with -long, a gibibyte) from a network of jumbo frames into an
// ordinary one, and in both directions over a path whose MTU is smaller behind the balancer than at
// both ends. The ends are notified by ICMP, or use smaller segments from the beginning.
func TestPathMTU(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	set := func(h *netnstest.Host, link, mtu string) {
		if _, err := h.Run("ip", "link", "set", link, "mtu", mtu); err != nil {
			t.Fatal(err)
		}
	}
	set(r.Client, "eth0", "9000")
	set(r.LB, "client", "9000")
	set(r.LB, "ep2", "1400") // the endpoint's own end stays at 1500
	for _, h := range r.Endpoints {
		if err := h.ServeTCP(":5001", rig.SumServer); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range [][]string{{rig.VIP4, "31.31.31.1", "32.32.32.1"}, {rig.VIP6, "[2001:db8:31::1]", "[2001:db8:32::1]"}} {
		r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s:1", f[0], f[1])
		r.Loxicmd("create lb %s --tcp=81:5001 --endpoints=%s:1", f[0], f[2])
		r.Loxicmd("create lb %s --tcp=82:5001 --endpoints=%s:1 --mss=1340", f[0], f[2])
		for _, c := range []struct {
			port   int
			bytes  int64
			tooBig bool // the client is notified of the bottleneck
		}{{80, rig.TransferSize(), false}, {82, 64 << 20, false}, {81, rig.TransferSize(), true}} {
			start, before := time.Now(), r.Metric("drops_total", "reason=too-big")
			if err := rig.SendSummed(r.Dial(rig.Join(f[0], c.port)), c.bytes); err != nil {
				t.Errorf("%s port %d: %v", f[0], c.port, err)
			}
			t.Logf("%s port %d: %d MiB in %v", f[0], c.port, c.bytes>>20, time.Since(start).Round(time.Millisecond))
			if tooBig := r.Metric("drops_total", "reason=too-big") > before; tooBig != c.tooBig {
				t.Errorf("%s port %d: packets too large: %v, want %v", f[0], c.port, tooBig, c.tooBig)
			}
		}
	}
}

// TestPathMTUWithoutDF checks that a sender that does not set DF is also notified of a smaller path
// MTU, and sends smaller packets.
func TestPathMTUWithoutDF(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	r.ServeUDPEcho()
	r.Loxicmd("create lb %s --udp=53:5353 --endpoints=31.31.31.1:1", rig.VIP4)
	for link, h := range map[string]*netnstest.Host{"ep1": r.LB, "eth0": r.Endpoints[0]} {
		if _, err := h.Run("ip", "link", "set", link, "mtu", "1400"); err != nil {
			t.Fatal(err)
		}
	}
	c := rig.DialUDP(t, r, rig.Join(rig.VIP4, 53))
	raw, err := c.(*net.UDPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var setErr error
	err = raw.Control(func(fd uintptr) {
		setErr = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT)
	})
	if err = errors.Join(err, setErr); err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("x", 1472)
	if got, err := rig.Datagram(c, text); err != nil || !strings.HasSuffix(got, text) { // the answer begins with the name of the server
		t.Errorf("the sender ignores the path MTU: got %d bytes, %v", len(got), err)
	}
	if r.Metric("drops_total", "reason=too-big") == 0 {
		t.Error("no packet was too big for the path")
	}
}

package modes_test

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
)

// TestHostPorts checks that the load balancer's own sockets can connect to an endpoint while
// connections of clients from the same source address use the ports that the kernel would choose
// for these sockets.
func TestHostPorts(t *testing.T) {
	t.Parallel()
	const connections = 300
	r := rig.New(t, rig.Options{Before: func(t testing.TB, s *netnstest.Standard) {
		for _, h := range []*netnstest.Host{s.Client, s.LB} {
			if err := h.Sysctl("net/ipv4/ip_local_port_range", "40000 40399"); err != nil {
				t.Fatal(err)
			}
		}
	}})
	rig.ServeSources(r)
	r.Loxicmd("create lb %s --tcp=7000:7000 --mode=onearm --endpoints=31.31.31.1:1", rig.VIP4)
	for range connections {
		seen, err := netip.ParseAddrPort(seenAs(t, r.Dial(rig.Join(rig.VIP4, 7000))))
		if err != nil || (seen.Port() >= 40000 && seen.Port() < 40400) {
			t.Fatalf("a client is seen as %s, with a port of the load balancer's sockets: %v", seen, err)
		}
	}
	for i := range connections {
		ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
		c, err := r.LB.DialContext(ctx, "tcp", "31.31.31.1:7000")
		cancel()
		if err != nil {
			t.Fatalf("connection %d of the load balancer itself: %v", i, err)
		}
		r.Lab.Cleanup(func() { _ = c.Close() })
		if seen, own := seenAs(t, c), c.LocalAddr().String(); seen != own {
			t.Fatalf("the load balancer's socket %s is seen as %s", own, seen)
		}
	}
}

// seenAs returns the address and port that the endpoint sees of a connection.
func seenAs(t *testing.T, c net.Conn) string {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(rig.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("who am I?\n")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64)
	n, err := c.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Replace(string(buf[:n]), "[::ffff:31.31.31.254]", "31.31.31.254", 1)
}

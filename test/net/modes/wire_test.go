package modes_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
)

// TestModesOnTheWire checks each mode, over TCP and UDP, IPv4 and IPv6, on the links of both sides.
// The client's link has only the client's address and the VIP. The endpoint's link has only the
// endpoint's address and the one that the mode gives the client, with the client's port, which is
// never a port of the load balancer's own sockets.
func TestModesOnTheWire(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Before: func(t testing.TB, s *netnstest.Standard) {
		if err := s.LB.Sysctl("net/ipv4/ip_local_port_range", "10000 20000"); err != nil {
			t.Fatal(err)
		}
	}})
	rig.ServeSources(r)
	for _, f := range []struct{ vip, any, host, endpoint, client, towards, own string }{
		{rig.VIP4, "0.0.0.0", "100.100.100.254", "31.31.31.1", "100.100.100.1", "31.31.31.254", "20.20.20.77"},
		{rig.VIP6, "::", "2001:db8:100::fe", "2001:db8:31::1", "2001:db8:100::1", "2001:db8:31::fe", "2001:db8:20::77"},
	} {
		for _, network := range []string{"tcp", "udp"} {
			for i, m := range []struct{ flags, create, asked, sees string }{
				{"--mode=default", f.vip, f.vip, f.client},
				{"--mode=onearm", f.vip, f.vip, f.towards},
				{"--mode=fullnat", f.vip, f.vip, f.vip},
				{"--mode=fullnat --snat=" + f.own, f.vip, f.vip, f.own},
				{"--mode=hostonearm", f.any, f.host, f.towards},
			} {
				port := 7000 + i
				r.Loxicmd("create lb %s --%s=%d:7000 --endpoints=%s:1 %s", m.create, network, port, rig.Bracket(f.endpoint), m.flags)
				client, endpoint := startCapture(t, r.Client, "eth0"), startCapture(t, r.Endpoints[0], "eth0")
				c := r.WantSource(r.Client, network, rig.Join(m.asked, port), m.sees)
				if c == nil {
					continue
				}
				at := netip.MustParseAddrPort(c.LocalAddr().String())
				service := netip.MustParseAddrPort(rig.Join(m.asked, port))
				server := netip.MustParseAddrPort(rig.Join(f.endpoint, 7000))
				seen := netip.AddrPortFrom(netip.MustParseAddr(m.sees), at.Port())
				both := func(a, b netip.AddrPort) [][2]netip.AddrPort { return [][2]netip.AddrPort{{a, b}, {b, a}} }
				addr := cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })
				if diff := cmp.Diff(both(at, service), client.stop(t, at, server, seen), addr); diff != "" {
					t.Errorf("%s %s %s, at the client: -want +got\n%s", network, service, m.flags, diff)
				}
				if diff := cmp.Diff(both(seen, server), endpoint.stop(t, at, service, seen), addr); diff != "" {
					t.Errorf("%s %s %s, at the endpoint: -want +got\n%s", network, service, m.flags, diff)
				}
			}
		}
	}
}

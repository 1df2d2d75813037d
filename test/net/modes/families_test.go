package modes_test

import (
	"net/netip"
	"strings"
	"testing"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
)

// crossFamilyServices returns services of one IP version with endpoints of the other: the VIP, the
// endpoint's address, and the load balancer's address towards the endpoint.
func crossFamilyServices() []struct{ vip, endpoint, towards string } {
	return []struct{ vip, endpoint, towards string }{
		{rig.VIP6, "31.31.31.1", "31.31.31.254"},
		{rig.VIP4, "[2001:db8:31::1]", "2001:db8:31::fe"},
	}
}

// TestFamilies checks that clients of one IP version reach endpoints of the other one, over TCP and
// UDP, in each mode, and that endpoints see the load balancer's address of their own version.
func TestFamilies(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	rig.ServeSources(r)
	own := map[string]string{rig.VIP6: "20.20.20.77", rig.VIP4: "2001:db8:20::77"}
	for _, f := range crossFamilyServices() {
		for _, network := range []string{"tcp", "udp"} {
			for _, m := range []struct{ flags, sees string }{
				{"", f.towards},
				{"--mode=onearm", f.towards},
				{"--mode=fullnat --snat=" + own[f.vip], own[f.vip]},
				{"--mode=fullnat", f.towards}, // the service has no VIP of the endpoint's version
			} {
				r.Loxicmd("create lb %s --%s=7000:7000 --endpoints=%s:1 %s", f.vip, network, f.endpoint, m.flags)
				r.WantSource(r.Client, network, rig.Join(f.vip, 7000), m.sees)
			}
		}
		if ct := r.Loxicmd("get ct"); !strings.Contains(ct, f.towards) {
			t.Errorf("get ct does not contain %s:\n%s", f.towards, ct)
		}
	}
}

// TestFamiliesMixed checks that a service with endpoints of both IP versions uses them in turn.
func TestFamiliesMixed(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	r.ServeNames()
	for _, vip := range []string{rig.VIP4, rig.VIP6} {
		r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=31.31.31.1:1,[2001:db8:32::1]:1,17.17.17.1:1", vip)
		r.WantAnswers(rig.Join(vip, 80), "ep1", "ep2", "ep3", "ep1", "ep2", "ep3")
	}
}

// TestFamiliesTransfer checks that 64 MiB in both directions arrive intact, in packets of one or
// many segments, with complete and with partial checksums.
func TestFamiliesTransfer(t *testing.T) {
	t.Parallel()
	const bytes = 64 << 20
	for name, o := range map[string]rig.Options{
		"offloads":    {},
		"no offloads": {Before: rig.DisableOffloads},
		"complete":    {Before: func(t testing.TB, s *netnstest.Standard) { rig.DisableOffloads(t, s); rig.TunnelClient(t, s) }},
		"no peer":     {Args: []string{"--redirect-peer=false"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, o)
			if err := r.Endpoints[0].ServeTCP(":5001", rig.ServeTransfer(bytes)); err != nil {
				t.Fatal(err)
			}
			for _, f := range crossFamilyServices() {
				r.Loxicmd("create lb %s --tcp=9:5001 --endpoints=%s:1", f.vip, f.endpoint)
				if err := rig.Transfer(r.Dial(rig.Join(f.vip, 9)), bytes); err != nil {
					t.Errorf("%s: %v", f.vip, err)
				}
				var packets float64
				for _, way := range []string{"in", "out"} {
					packets += r.Metric("service_packets_total", "dir="+way, "service="+rig.Join(f.vip, 9)+"/tcp")
				}
				if o.Before == nil && packets > 2*bytes/8000 {
					t.Errorf("%s: %v packets for 128 MiB: packets of many segments were split", f.vip, packets)
				}
				t.Logf("%s: %v packets", f.vip, packets)
			}
			for _, h := range []*netnstest.Host{r.Client, r.Endpoints[0]} {
				if n := rig.ChecksumErrors(t, h); n > 0 {
					t.Errorf("%s has received %d packets with wrong checksums", h.Name, n)
				}
			}
		})
	}
}

// TestFamiliesEcho checks that clients of either IP version can ping a VIP whose endpoints have the
// other one.
func TestFamiliesEcho(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	for _, f := range crossFamilyServices() {
		r.Loxicmd("create lb %s --icmp --endpoints=%s:1 --mode=fullnat", f.vip, f.endpoint)
		for _, size := range []string{"56", "1400"} {
			if out, err := r.Client.Run("ping", "-c2", "-i0.2", "-W5", "-s", size, f.vip); err != nil {
				t.Errorf("ping %s: %v\n%s", f.vip, err, out)
			}
		}
	}
	if out := r.Loxicmd("get ct"); strings.Count(out, "bidir") != 8 {
		t.Errorf("want both directions of four connections:\n%s", out)
	}
}

// TestFamiliesPathMTU checks path MTU discovery if the smallest MTU is that of the balancer's link,
// and if it is behind a router, which reports it in its own IP version.
func TestFamiliesPathMTU(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	far := farHost(r)
	for _, h := range []*netnstest.Host{r.Endpoints[1], far} {
		if err := h.ServeTCP(":5001", rig.SumServer); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := r.LB.Run("ip", "link", "set", "ep2", "mtu", "1400"); err != nil {
		t.Fatal(out, err)
	}
	for vip, endpoints := range map[string][]string{
		rig.VIP6: {"32.32.32.1", "40.40.40.1"},
		rig.VIP4: {"[2001:db8:32::1]", "[2001:db8:40::1]"},
	} {
		for i, e := range endpoints {
			r.Loxicmd("create lb %s --tcp=%d:5001 --endpoints=%s:1", vip, 80+i, e)
			if err := rig.SendSummed(r.Dial(rig.Join(vip, 80+i)), 16<<20); err != nil {
				t.Errorf("%s to %s: %v", vip, e, err)
			}
		}
	}
}

// farHost creates a host behind the first endpoint. The MTU is 1400 at the endpoint's end of the
// link, and larger at the host's end.
func farHost(r *rig.Rig) *netnstest.Host {
	r.T.Helper()
	ep := r.Endpoints[0]
	far, err := r.Lab.Host("far")
	if err != nil {
		r.T.Fatal(err)
	}
	near4, near6 := rig.Prefix("40.40.40.254/24"), rig.Prefix("2001:db8:40::fe/64")
	if err := r.Lab.Link(netnstest.End{Host: ep, Interface: "far", Addresses: []netip.Prefix{near4, near6}},
		netnstest.End{Host: far, Interface: "eth0", Addresses: []netip.Prefix{rig.Prefix("40.40.40.1/24"), rig.Prefix("2001:db8:40::1/64")}}, 1500); err != nil {
		r.T.Fatal(err)
	}
	for _, step := range []struct {
		host *netnstest.Host
		line string
	}{
		{ep, "link set far mtu 1400"},
		{far, "route add default via 40.40.40.254"},
		{far, "-6 route add default via 2001:db8:40::fe"},
		{r.LB, "route add 40.40.40.0/24 via 31.31.31.1"},
		{r.LB, "-6 route add 2001:db8:40::/64 via 2001:db8:31::1"},
	} {
		if out, err := step.host.Run(append([]string{"ip"}, strings.Fields(step.line)...)...); err != nil {
			r.T.Fatal(step.line, out, err)
		}
	}
	for _, name := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
		if err := ep.Sysctl(name, "1"); err != nil {
			r.T.Fatal(err)
		}
	}
	return far
}

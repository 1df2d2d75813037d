package services_test

import (
	"fmt"
	"strings"
	"testing"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
)

// TestPortRanges checks at which ports of the endpoints packets of services with port ranges
// arrive, also after a restart.
func TestPortRanges(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	for _, h := range r.Endpoints {
		for port := 5001; port <= 5003; port++ {
			name := fmt.Sprintf("%s:%d", h.Name, port)
			if err := h.ServeHTTPWith(fmt.Sprintf(":%d", port), rig.NameHandler(name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for vip, list := range map[string]string{rig.VIP4: rig.Endpoints4(), rig.VIP6: rig.Endpoints6()} {
		r.Loxicmd("create lb %s --tcp=8080-8089:5001,9001-9003:5001-5003 --endpoints=%s", vip, list)
	}
	check := func() {
		t.Helper()
		for _, vip := range []string{rig.VIP4, rig.VIP6} {
			for _, port := range []int{8080, 8085, 8089} {
				wantFrom(r, rig.Join(vip, port), ":5001")
			}
			for port := 9001; port <= 9003; port++ {
				wantFrom(r, rig.Join(vip, port), fmt.Sprintf(":%d", port-4000))
			}
			if who, err := r.Ask(rig.Join(vip, 8090)); err == nil {
				t.Errorf("%s answers at port 8090, which is of no service", who)
			}
		}
	}
	check()
	if out := r.Loxicmd("get lb"); !strings.Contains(out, "8080-8089") || !strings.Contains(out, "9001-9003") {
		t.Errorf("get lb does not show the ranges:\n%s", out)
	}
	if out, err := r.Command("create", "lb", rig.VIP4, "--tcp=8089-8099:5001", "--endpoints="+rig.Endpoints4()); err == nil ||
		!strings.Contains(err.Error()+out, "overlaps with service 20.20.20.1:8080-8089/tcp") {
		t.Errorf("a range that overlaps: %s, %v", out, err)
	}
	r.Stop()
	r.Restart()
	check()
	r.Loxicmd("delete lb %s --tcp=8080-8089", rig.VIP4)
	if who, err := r.Ask(rig.Join(rig.VIP4, 8085)); err == nil {
		t.Errorf("%s answers at a port of a deleted service", who)
	}
	wantFrom(r, rig.Join(rig.VIP4, 9002), ":5002")
}

// TestSources checks that a service refuses clients that its list does not contain, and that lists
// can be changed and survive a restart.
func TestSources(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	r.ServeNames()
	for vip, with := range map[string][3]string{
		rig.VIP4: {rig.Endpoints4(), "192.0.2.0/24", "0.0.0.0/1,128.0.0.0/1"},
		rig.VIP6: {rig.Endpoints6(), "2001:db8:ffff::/48", "::/1,8000::/1"},
	} {
		r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s --sources=%s", vip, with[0], with[1])
		if who, err := r.Ask(rig.Join(vip, 80)); err == nil {
			t.Errorf("%s: answered by %s", vip, who)
		}
		r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s --sources=%s,%s", vip, with[0], with[1], with[2])
		wantFrom(r, rig.Join(vip, 80), "")
		r.Stop()
		r.Restart()
		wantFrom(r, rig.Join(vip, 80), "")
		r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s", vip, with[0])
		wantFrom(r, rig.Join(vip, 80), "")
	}
}

// wantFrom fails the test unless the next answer has the given suffix.
func wantFrom(r *rig.Rig, address, suffix string) {
	r.T.Helper()
	who, err := r.Ask(address)
	name, _, _ := strings.Cut(who, " ")
	if err != nil || !strings.HasSuffix(name, suffix) {
		r.T.Errorf("%s: %q, %v; want an answer of ...%s", address, who, err, suffix)
	}
}

// TestEcho checks that endpoints answer pings of a VIP with an ICMP service, and the machine itself
// answers pings of other VIPs.
func TestEcho(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	r.Loxicmd("create lb %s --icmp --endpoints=%s", rig.VIP4, rig.Endpoints4())
	r.Loxicmd("create lb %s --icmp --endpoints=%s", rig.VIP6, rig.Endpoints6())
	for _, vip := range []string{rig.VIP4, rig.VIP6} {
		for range 3 {
			if out, err := r.Client.Run("ping", "-c2", "-i0.2", "-W5", vip); err != nil {
				t.Errorf("ping %s: %v\n%s", vip, err, out)
			}
		}
	}
	out := r.Loxicmd("get ct --state=bidir")
	if n := strings.Count(out, "| dnat-") + strings.Count(out, "| snat-"); n != 12 { // the table may have others, of earlier tests
		t.Errorf("%d entries of pings, want both directions of six:\n%s", n, out)
	}
	r.Loxicmd("delete lb %s --icmp", rig.VIP4)
	if out := r.Loxicmd("get lb"); strings.Contains(out, rig.VIP4) || !strings.Contains(out, rig.VIP6) {
		t.Errorf("after the deletion of one:\n%s", out)
	}
}

// TestEchoModes checks pings in modes in which the endpoint sees an address of the load balancer:
// the endpoint sees different identifiers of clients that use the same one.
func TestEchoModes(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	for _, f := range []struct{ vip, any, host, endpoint string }{
		{rig.VIP4, "0.0.0.0", "100.100.100.254", "31.31.31.1"}, {rig.VIP6, "::", "2001:db8:100::fe", "[2001:db8:31::1]"},
	} {
		for _, to := range []struct{ vip, mode, pinged, identifier string }{
			// Another identifier avoids open connections of the previous service.
			{f.vip, "onearm", f.vip, "4000"}, {f.vip, "fullnat", f.vip, "4001"}, {f.any, "hostonearm", f.host, "4002"},
		} {
			r.Loxicmd("create lb %s --icmp --endpoints=%s:1 --mode=%s", to.vip, f.endpoint, to.mode)
			for _, from := range []*netnstest.Host{r.Client, r.Endpoints[1], r.Endpoints[2]} {
				if out, err := from.Run("ping", "-e", to.identifier, "-c2", "-i0.2", "-W5", to.pinged); err != nil {
					t.Errorf("%s: ping %s from %s: %v\n%s", to.mode, to.pinged, from.Name, err, out)
				}
			}
			if out := r.Loxicmd("get ct"); strings.Count(out, ","+f.endpoint) < 3 {
				t.Errorf("%s: want three connections whose source is translated:\n%s", to.mode, out)
			}
			r.Loxicmd("delete lb %s --icmp", to.vip)
		}
	}
}

// TestSecondary checks that a service answers at its secondary VIPs over TCP and UDP, counts
// connections to them, and that the balancer owns them, also after a restart.
func TestSecondary(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	r.ServeNames()
	r.ServeUDPEcho()
	for _, f := range []struct{ vips, ports, list string }{
		{rig.VIP4 + " 20.20.20.2 20.20.20.3", "--tcp=80:5001 --udp=53:5353", rig.Endpoints4()},
		{rig.VIP6 + " 2001:db8:20::2 2001:db8:20::3", "--tcp=80:5001 --udp=53:5353", rig.Endpoints6()},
	} {
		vips := strings.Fields(f.vips)
		r.Loxicmd("create lb %s %s --secips=%s --endpoints=%s", vips[0], f.ports, strings.Join(vips[1:], ","), f.list)
		check := func() {
			t.Helper()
			for _, vip := range vips {
				if _, err := r.Ask(rig.Join(vip, 80)); err != nil {
					t.Error(err)
				}
				if _, err := rig.Datagram(rig.DialUDP(t, r, rig.Join(vip, 53)), "hello"); err != nil {
					t.Errorf("%s: %v", vip, err)
				}
			}
		}
		check()
		r.Stop()
		check()
		r.Restart()
		check()
		if got := r.Metric("service_connections_total", "service="+rig.Join(vips[0], 80)+"/tcp"); got != 9 {
			t.Errorf("%v connections are counted, want 9", got)
		}
		if out := r.Loxicmd("get lb -o wide"); !strings.Contains(out, vips[2]) {
			t.Errorf("get lb -o wide does not show %s:\n%s", vips[2], out)
		}
		r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s", vips[0], f.list)
		r.WantNoAnswer(rig.Join(vips[1], 80))
		r.Loxicmd("delete lb %s --tcp=80", vips[0])
		r.Loxicmd("delete lb %s --udp=53", vips[0])
		if out, err := r.LB.Run("ip", "-o", "address", "show"); err != nil || strings.Contains(out, vips[1]+"/") {
			t.Errorf("addresses of the service remain: %s, %v", out, err)
		}
	}
}

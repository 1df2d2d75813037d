package modes_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest/labtest"
)

// TestModes checks for each mode, over TCP and UDP, IPv4 and IPv6, that the endpoint sees the
// expected source address, and that the client gets replies from the VIP. A change of the service's
// mode does not change open connections.
func TestModes(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	rig.ServeSources(r)
	families := []struct{ vip, any, host, endpoint, client, towards, own string }{
		{rig.VIP4, "0.0.0.0", "100.100.100.254", "31.31.31.1", "100.100.100.1", "31.31.31.254", "20.20.20.77"},
		{rig.VIP6, "::", "2001:db8:100::fe", "[2001:db8:31::1]", "2001:db8:100::1", "2001:db8:31::fe", "2001:db8:20::77"},
	}
	type open struct {
		net.Conn
		sees string
	}
	var opened []open
	for _, f := range families {
		for _, network := range []string{"tcp", "udp"} {
			for _, m := range []struct{ flags, sees string }{
				{"--mode=onearm", f.towards},
				{"--mode=fullnat", f.vip},
				{"--mode=fullnat --snat=" + f.own, f.own},
				{"--mode=onearm --snat=" + f.own, f.own},
				{"--mode=default", f.client},
				{"--mode=onearm", f.towards},
			} {
				r.Loxicmd("create lb %s --%s=7000:7000 --endpoints=%s:1 %s", f.vip, network, f.endpoint, m.flags)
				opened = append(opened, open{r.WantSource(r.Client, network, rig.Join(f.vip, 7000), m.sees), m.sees})
			}
			r.Loxicmd("create lb %s --%s=7001:7000 --endpoints=%s:1 --mode=hostonearm", f.any, network, f.endpoint)
			opened = append(opened, open{r.WantSource(r.Client, network, rig.Join(f.host, 7001), f.towards), f.towards})
		}
	}
	for _, c := range opened {
		if c.Conn == nil {
			continue
		}
		if got, err := rig.AskSource(c); err != nil || got != c.sees {
			t.Errorf("%s to %s: the endpoint sees %q, saw %s before the mode changed: %v", c.LocalAddr(), c.RemoteAddr(), got, c.sees, err)
		}
	}
	if ct := r.Loxicmd("get ct"); !strings.Contains(ct, ",31.31.31.1:7000:w1") || !strings.Contains(ct, "fsnat-") {
		t.Errorf("get ct lacks a connection:\n%s", ct)
	}
}

// TestHairpin checks that an endpoint can connect to services of which it is an endpoint.
func TestHairpin(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	rig.ServeSources(r)
	for _, f := range []struct{ vip, endpoint, other, self, towards string }{
		{rig.VIP4, "31.31.31.1", "32.32.32.1", "31.31.31.1", "31.31.31.254"},
		{rig.VIP6, "[2001:db8:31::1]", "[2001:db8:32::1]", "2001:db8:31::1", "2001:db8:31::fe"},
	} {
		for _, network := range []string{"tcp", "udp"} {
			r.Loxicmd("create lb %s --%s=7000:7000 --endpoints=%s:1", f.vip, network, f.endpoint)
			r.Loxicmd("create lb %s --%s=7001:7000 --endpoints=%s:1", f.vip, network, f.other)
			r.Loxicmd("create lb %s --%s=7002:7000 --endpoints=%s:1 --mode=onearm", f.vip, network, f.endpoint)
			r.WantSource(r.Endpoints[0], network, rig.Join(f.vip, 7000), f.vip)
			r.WantSource(r.Endpoints[0], network, rig.Join(f.vip, 7001), f.self)
			r.WantSource(r.Endpoints[0], network, rig.Join(f.vip, 7002), f.towards)
		}
	}
}

// TestSourceFollows checks that new connections use the load balancer's new address after its
// address towards the endpoints has changed.
func TestSourceFollows(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	rig.ServeSources(r)
	r.Loxicmd("create lb %s --tcp=7000:7000 --endpoints=31.31.31.1:1 --mode=onearm", rig.VIP4)
	r.Loxicmd("create lb 0.0.0.0 --tcp=7001:7000 --endpoints=31.31.31.1:1 --mode=hostonearm")
	r.WantSource(r.Client, "tcp", rig.Join(rig.VIP4, 7000), "31.31.31.254")
	if err := r.LB.AddAddress("ep1", rig.Prefix("31.31.31.200/24")); err != nil {
		t.Fatal(err)
	}
	if out, err := r.LB.Run("ip", "route", "replace", "31.31.31.0/24", "dev", "ep1", "src", "31.31.31.200"); err != nil {
		t.Fatal(out, err)
	}
	for _, address := range []string{rig.Join(rig.VIP4, 7000), "31.31.31.200:7001"} {
		labtest.Eventually(t, rig.Patience, func(ctx context.Context) error {
			c, err := r.Client.DialContext(ctx, "tcp", address)
			if err != nil {
				return err
			}
			defer c.Close()
			if got, err := rig.AskSource(c); err != nil || got != "31.31.31.200" {
				return fmt.Errorf("%s: the endpoint sees %q: %w", address, got, err)
			}
			return nil
		})
	}
}

package policy_test

import (
	"context"
	"fmt"
	"testing"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// Destinations that only the default route leads to.
const (
	outside4 = "198.51.100.1"
	outside6 = "2001:db8:ffff::1"
)

// newOutside returns a rig whose client is the default gateway. The client has the servers of
// ServeSource.
func newOutside(t *testing.T, args ...string) *rig.Rig {
	t.Helper()
	r := rig.New(t, rig.Options{Options: netnstest.Options{Forwarding: true}, Args: args, Before: func(t testing.TB, s *netnstest.Standard) {
		for _, a := range []string{outside4 + "/32", outside6 + "/128"} {
			if err := s.Client.AddAddress("lo", rig.Prefix(a)); err != nil {
				t.Fatal(err)
			}
		}
		for _, via := range []string{"100.100.100.1", "2001:db8:100::1"} {
			if out, err := s.LB.Run("ip", "route", "add", "default", "via", via); err != nil {
				t.Fatal(out, err)
			}
		}
	}})
	rig.ServeSources(r)
	r.ServeSource(r.Client, ":7000", rig.Join(outside4, 7000), rig.Join(outside6, 7000), "100.100.100.1:7000", "[2001:db8:100::1]:7000")
	return r
}

// TestEgress checks that connections that an endpoint opens over the default route leave with the
// VIP, or with the addresses that the service configures. Connections to a connected network of the
// load balancer, and those of other hosts, keep their source. The service itself still works.
//
// V136
func TestEgress(t *testing.T) {
	t.Parallel()
	r := newOutside(t)
	for _, f := range []struct{ vip, endpoints, outside, near, own, pool string }{
		{rig.VIP4, rig.Endpoints4()[:len("31.31.31.1:1,32.32.32.1:1")], outside4, "100.100.100.1", "31.31.31.1", "20.20.20.77"},
		{rig.VIP6, "[2001:db8:31::1]:1,[2001:db8:32::1]:1", outside6, "2001:db8:100::1", "2001:db8:31::1", "2001:db8:20::77"},
	} {
		for _, network := range []string{"tcp", "udp"} {
			ep1, ep3 := r.Endpoints[0], r.Endpoints[2]
			r.WantSource(ep1, network, rig.Join(f.outside, 7000), f.own)
			r.Loxicmd("create lb %s --%s=80:7000 --endpoints=%s --egress", f.vip, network, f.endpoints)
			c := r.WantSource(ep1, network, rig.Join(f.outside, 7000), f.vip)
			r.WantSource(r.Endpoints[1], network, rig.Join(f.outside, 7000), f.vip)
			r.WantSource(ep1, network, rig.Join(f.near, 7000), f.own)
			r.WantSource(ep3, network, rig.Join(f.outside, 7000), rig.HostAddress(ep3, f.vip == rig.VIP6))
			r.WantSource(r.Client, network, rig.Join(f.vip, 80), f.near)
			r.Loxicmd("create lb %s --%s=80:7000 --endpoints=%s --egress --snat=%s", f.vip, network, f.endpoints, f.pool)
			r.WantSource(ep1, network, rig.Join(f.outside, 7000), f.pool)
			r.WantSource(r.Client, network, rig.Join(f.vip, 80), f.near)
			if got, err := rig.AskSource(c); err != nil || got != f.vip {
				t.Errorf("%s: an existing connection is seen as %q, want %s: %v", network, got, f.vip, err)
			}
			r.Loxicmd("delete lb %s --%s=80", f.vip, network)
			labtest.Eventually(t, rig.Patience, func(ctx context.Context) error {
				return checkSource(ctx, ep1, network, rig.Join(f.outside, 7000), f.own)
			})
		}
	}
}

// checkSource returns an error unless a new connection of a host has the given source address.
func checkSource(ctx context.Context, from *netnstest.Host, network, address, want string) error {
	c, err := from.DialContext(ctx, network, address)
	if err != nil {
		return err
	}
	defer c.Close()
	got, err := rig.AskSource(c)
	if err == nil && got != want {
		err = fmt.Errorf("%s %s: seen as %q, want %s", network, address, got, want)
	}
	return err
}

// TestEgressFollows checks the source address after changes of the default route, and after the
// daemon was killed and restarted.
func TestEgressFollows(t *testing.T) {
	t.Parallel()
	r := newOutside(t)
	r.Loxicmd("create lb %s --tcp=80:7000 --endpoints=31.31.31.1:1 --egress", rig.VIP4)
	ep1 := r.Endpoints[0]
	c := r.WantSource(ep1, "tcp", rig.Join(outside4, 7000), rig.VIP4)
	r.Kill()
	r.WantSource(ep1, "tcp", rig.Join(outside4, 7000), rig.VIP4)
	r.Restart()
	r.WantSource(ep1, "tcp", rig.Join(outside4, 7000), rig.VIP4)
	if got, err := rig.AskSource(c); err != nil || got != rig.VIP4 {
		t.Errorf("after the restart: seen as %q: %v", got, err)
	}
	for _, step := range []struct{ command, want string }{
		{"ip route replace default via 17.17.17.1", rig.VIP4},
		{"ip route add " + outside4 + " via 100.100.100.1", "31.31.31.1"}, // the default route is no longer used
		{"ip route replace default via 100.100.100.1", rig.VIP4},
	} {
		if out, err := r.LB.Run("sh", "-c", step.command); err != nil {
			t.Fatal(out, err)
		}
		if step.command == "ip route replace default via 17.17.17.1" {
			continue // not reachable
		}
		labtest.Eventually(t, rig.Patience, func(ctx context.Context) error {
			return checkSource(ctx, ep1, "tcp", rig.Join(outside4, 7000), step.want)
		})
	}
	r.Loxicmd("create lb 20.20.20.2 --tcp=80:7000 --endpoints=31.31.31.1:1 --egress")
	r.WantSource(ep1, "tcp", rig.Join(outside4, 7000), rig.VIP4) // the address is of the first service
	r.Loxicmd("delete lb %s --tcp=80", rig.VIP4)
	labtest.Eventually(t, rig.Patience, func(ctx context.Context) error {
		return checkSource(ctx, ep1, "tcp", rig.Join(outside4, 7000), "20.20.20.2")
	})
}

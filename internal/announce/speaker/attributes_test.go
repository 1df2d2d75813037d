package speaker

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"loxilb/internal/lb/bgp"
	"loxilb/test/await"
	"loxilb/test/netnstest/routers"
)

const vip = "100.64.0.1/32"

// awaitBestPath waits until FRR's path to the VIP is as it should be.
func awaitBestPath(t testing.TB, f *routers.FRR, what string, is func(routers.Path, string) bool) {
	t.Helper()
	p := netip.MustParsePrefix(vip)
	await.NoError(t, testTimeout, func() error {
		routes, err := f.Routes()
		if err != nil {
			return err
		}
		if len(routes[p]) == 0 {
			return fmt.Errorf("no path to %s", vip)
		}
		communities, err := f.Communities(p)
		if err == nil && !is(routes[p][0], communities) {
			err = fmt.Errorf("not %s: %+v, communities %q", what, routes[p][0], communities)
		}
		return err
	})
}

// TestAttributes checks that neighbors receive the attributes of a route, by eBGP and iBGP.
func TestAttributes(t *testing.T) {
	t.Parallel()
	for _, asn := range []uint32{nodeASN, routerASN} {
		t.Run(fmt.Sprint(asn), func(t *testing.T) {
			t.Parallel()
			l := newLink(t)
			f := l.frr(t, asn)
			c := startChild(t, l.node)
			c.call("SetRoutes", []bgp.Route{{Prefix: netip.MustParsePrefix(vip), Attributes: bgp.Attributes{
				MED: 20, LocalPref: 5000, Prepend: 2, Communities: []bgp.Community{65001<<16 | 7},
			}}})
			c.call("SetNeighbor", neighbor("10.0.0.2"))
			c.call("Start", bgp.Speaker{ASN: asn})
			path, pref := strings.TrimSpace(strings.Repeat(fmt.Sprint(nodeASN)+" ", 3)), uint32(0)
			if asn == routerASN {
				path, pref = "", 5000
			}
			awaitBestPath(t, f, "as announced", func(p routers.Path, communities string) bool {
				return p.Valid && p.MED == 20 && p.LocalPref == pref && p.ASPath == path && communities == "65001:7" && p.NextHops[0] == "10.0.0.1"
			})
			text, err := f.Query("bgpd", "show bgp ipv4 unicast "+vip)
			if err != nil || strings.Contains(text, "Large Community") {
				t.Errorf("the mark of prepending is announced: %v, %s", err, text)
			}

			c.call("SetRoutes", []bgp.Route{{Prefix: netip.MustParsePrefix(vip), Attributes: bgp.Attributes{
				MED: 120, Communities: []bgp.Community{bgp.GracefulShutdown},
			}}})
			awaitBestPath(t, f, "shutting down", func(p routers.Path, communities string) bool {
				return p.MED == 120 && communities == "graceful-shutdown" && strings.Count(p.ASPath, fmt.Sprint(nodeASN)) <= 1
			})
		})
	}
}

// TestPolicies checks that policies apply to one neighbor or all, change later, and that an invalid
// one changes nothing.
func TestPolicies(t *testing.T) {
	t.Parallel()
	l := newLink(t)
	f := l.frr(t, nodeASN)
	c := startChild(t, l.node)
	c.call("SetRoutes", []bgp.Route{route(vip), route("100.64.1.0/24"), route("2001:db8:1::1/128")})
	c.call("SetNeighbor", neighbor("10.0.0.2"))
	c.call("SetNeighbor", neighbor("2001:db8::2"))
	c.call("Start", bgp.Speaker{ASN: nodeASN})
	awaitPrefixes(t, f, vip, "100.64.1.0/24", "2001:db8:1::1/128")

	p := Policies{
		Sets: []bgp.DefinedSet{
			{Type: bgp.PrefixSet, Name: "vips", Prefixes: []bgp.PrefixRule{{Prefix: "100.64.0.0/16", Lengths: "32..32"}}},
			{Type: bgp.NeighborSet, Name: "v6", Members: []string{"2001:db8::/64"}},
			{Type: bgp.CommunitySet, Name: "seven", Members: []string{"65001:7"}},
		},
		Policies: []bgp.Policy{
			{Name: "out", Statements: []bgp.Statement{
				{Name: "mark", Conditions: bgp.Conditions{Prefix: bgp.SetMatch{Set: "vips", Match: "any"}}, Actions: bgp.Actions{
					MED: "77", Community: bgp.SetCommunity{Option: "add", Values: []string{"65001:7"}}, Prepend: bgp.Prepend{AS: "65009", Repeat: 2},
				}},
				{Name: "more", Conditions: bgp.Conditions{Community: bgp.SetMatch{Set: "seven"}}, Actions: bgp.Actions{MED: "+3", Disposition: "accept-route"}},
			}},
			{Name: "sixth", Statements: []bgp.Statement{
				{Name: "none", Conditions: bgp.Conditions{Neighbor: bgp.SetMatch{Set: "v6"}, Families: []string{"ipv6-unicast"}}, Actions: bgp.Actions{Disposition: "reject-route"}},
			}},
		},
		Apps: []bgp.Application{
			{Neighbor: "global", Policies: []string{"sixth"}},
			{Neighbor: "10.0.0.2", Policies: []string{"out", "sixth"}, Reject: true},
		},
	}
	c.call("SetPolicies", p)
	awaitPrefixes(t, f, vip)
	if s, err := c.session("10.0.0.2"); err != nil || s.Sent != 1 {
		t.Errorf("session: %+v, %v", s, err)
	}
	awaitBestPath(t, f, "changed by the policy", func(p routers.Path, communities string) bool {
		return p.MED == 80 && communities == "65001:7" && p.ASPath == fmt.Sprintf("65009 65009 %d", nodeASN)
	})

	for name, broken := range map[string]Policies{
		"no such policy": {Apps: []bgp.Application{{Neighbor: "global", Policies: []string{"missing"}}}},
		"no such set": {
			Policies: []bgp.Policy{{Name: "x", Statements: []bgp.Statement{{Name: "s", Conditions: bgp.Conditions{Prefix: bgp.SetMatch{Set: "missing"}}}}}},
			Apps:     []bgp.Application{{Neighbor: "global", Policies: []string{"x"}}},
		},
		"no pattern": {Sets: []bgp.DefinedSet{{Type: bgp.ASPathSet, Name: "x", Members: []string{"("}}}},
	} {
		if err := c.try("SetPolicies", broken); err == nil {
			t.Errorf("%s: no error", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
	c.call("SetPolicies", p)
	awaitPrefixes(t, f, vip)
	c.call("SetPolicies", Policies{})
	awaitPrefixes(t, f, vip, "100.64.1.0/24", "2001:db8:1::1/128")
	awaitBestPath(t, f, "as announced", func(p routers.Path, communities string) bool { return p.MED == 0 && communities == "" })
}

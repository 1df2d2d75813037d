package netdev

import (
	"errors"
	"testing"
)

// TestRoutesByDestination checks that settings that make a route depend on more than the
// destination are noticed, existing and new ones, and that others are not.
func TestRoutesByDestination(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		change string
		want   bool
	}{
		{"ip route add 10.9.0.0/16 via 10.1.0.2", true},
		{"ip -6 route add 2001:db8:9::/48 via 2001:db8:1::2", true},
		{"ip rule add fwmark 1 table 100", true},
		{"ip rule add to 10.9.0.0/16 table 100", true},
		{"ip nexthop add id 1 via 10.1.0.2 dev eth0", true},
		{"ip rule add from 10.9.0.0/16 table 100", false},
		{"ip -6 rule add from 2001:db8:9::/48 table 100", false},
		{"ip rule add ipproto tcp table 100", false},
		{"ip rule add sport 80 table 100", false},
		{"ip -6 rule add dport 80 table 100", false},
		{"ip route add 10.9.0.0/16 nexthop via 10.1.0.2 nexthop via 10.1.0.3", false},
		{"ip -6 route add 2001:db8:9::/48 nexthop via 2001:db8:1::2 nexthop via 2001:db8:1::3", false},
		{"ip -6 route add 2001:db8:9::/48 from 2001:db8:1::/64 via 2001:db8:1::2", false},
		{"ip nexthop add id 1 via 10.1.0.2 dev eth0; ip nexthop add id 2 group 1", false},
	} {
		t.Run("before: "+c.change, func(t *testing.T) {
			t.Parallel()
			a, _ := pair(t)
			run(t, a, "sh", "-c", c.change)
			n, _ := runHost(t, a)
			eventually(t, func() error {
				if !n.mirror.Surveyed() {
					return errors.New("not surveyed")
				}
				return nil
			})
			if got := n.RoutesByDestination(); got != c.want {
				t.Errorf("routes depend on the destination alone: %v, want %v", got, c.want)
			}
		})
		t.Run("later: "+c.change, func(t *testing.T) {
			t.Parallel()
			a, _ := pair(t)
			n, r := runHost(t, a)
			eventually(t, func() error {
				if !n.RoutesByDestination() {
					return errors.New("not known to be by destination")
				}
				return nil
			})
			run(t, a, "sh", "-c", c.change)
			run(t, a, "ip", "link", "add", "marker", "type", "bridge")
			eventually(t, func() error {
				if !r.exists("marker") {
					return errors.New("marker not delivered")
				}
				return nil
			})
			if got := n.RoutesByDestination(); got != c.want {
				t.Errorf("routes depend on the destination alone: %v, want %v", got, c.want)
			}
		})
	}
}

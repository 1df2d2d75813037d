package network_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// TestInterfaceSelection checks that --whitelist and --blacklist select interfaces, that the others
// are not changed, and that doctor reports an endpoint behind one of the others.
func TestInterfaceSelection(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args    []string
		works   bool
		finding bool
	}{
		"whitelist with all that matter": {[]string{"--whitelist", "^(client|ep1)$"}, true, false},
		"whitelist without the client":   {[]string{"--whitelist", "^ep"}, false, false},
		"blacklist of another":           {[]string{"--blacklist", "^ep[23]$"}, true, false},
		"blacklist of the client":        {[]string{"--blacklist", "client"}, false, false},
		"blacklist of the endpoint":      {[]string{"--blacklist", "^ep1$"}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.Options{Args: c.args})
			r.ServeNames()
			r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=31.31.31.1:1", rig.VIP4)
			if c.works {
				r.WantAnswers(rig.Join(rig.VIP4, 80), "ep1", "ep1")
			} else {
				r.WantNoAnswer(rig.Join(rig.VIP4, 80))
			}
			const finding = "endpoint 31.31.31.1 is reached through" // the table wraps the rest
			if c.finding {
				r.EventuallyShows("get status --failed", finding)
			} else if out := r.Loxicmd("get status --failed"); strings.Contains(out, "is reached through") {
				t.Errorf("a wrong finding: %s", out)
			}
		})
	}
}

// TestLateInterface checks that a new interface is attached within a second, also if it is removed
// and added again.
//
// P21 A new interface is balanced within a second
func TestLateInterface(t *testing.T) { // not parallel: it asserts a time
	r := rig.Shared(t)
	r.ServeNames()
	r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s", rig.VIP4, rig.Endpoints4())
	late, err := r.Host("late")
	if err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		here := netnstest.End{Host: late, Interface: "eth0", Addresses: []netip.Prefix{rig.Prefix("50.50.50.1/24")}}
		there := netnstest.End{Host: r.LB, Interface: "late", Addresses: []netip.Prefix{rig.Prefix("50.50.50.254/24")}}
		if err := r.Link(here, there, 0); err != nil {
			t.Fatal(err)
		}
		if err := late.AddRoute(rig.Prefix("0.0.0.0/0"), netip.MustParseAddr("50.50.50.254")); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		labtest.Promised(t, time.Second, func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond) // a lost SYN is retransmitted after a second
			defer cancel()
			_, err := late.Get(ctx, rig.Join(rig.VIP4, 80))
			return err
		})
		t.Logf("round %d: attached after %v", round, time.Since(start).Round(time.Millisecond))
		link, err := late.Netlink().LinkByName("eth0")
		if err != nil {
			t.Fatal(err)
		}
		if err := late.Netlink().LinkDel(link); err != nil {
			t.Fatal(err)
		}
	}
	r.WantAnswers(rig.Join(rig.VIP4, 80), "ep3")
}

// TestDetach checks that --detach removes programs, pins and owned addresses, and restores the
// routing.
//
// P19 `loxilb --detach` removes everything, and restores the routing
func TestDetach(t *testing.T) {
	t.Parallel()
	for _, attach := range []string{"tcx", "clsact"} {
		t.Run(attach, func(t *testing.T) {
			t.Parallel()
			var before string
			r := rig.New(t, rig.Options{
				Args:    []string{"--attach", attach, "--xdp=generic"},
				Options: netnstest.Options{Forwarding: true},
				Before: func(t testing.TB, s *netnstest.Standard) {
					awaitLinkLocal(t, s.LB)
					before = networkState(t, s.LB)
				},
			})
			r.ServeNames()
			r.Loxicmd("create lb 31.31.31.200 --tcp=80:5001 --endpoints=%s --mode=onearm", rig.Endpoints4())
			r.Loxicmd("create lb 2001:db8:31::200 --tcp=80:5001 --endpoints=%s --mode=fullnat", rig.Endpoints6())
			r.Loxicmd("create lb %s --tcp=82:5001 --endpoints=31.31.31.254:1", rig.VIP4)
			r.Loxicmd("create lb %s --tcp=80:5001 --endpoints=%s", rig.VIP4, rig.Endpoints4())
			r.WantAnswers(rig.Join(rig.VIP4, 80), "ep1")
			if err := r.DetachAll(); err != nil {
				t.Fatal(err)
			}
			if after := networkState(t, r.LB); after != before {
				t.Errorf("the network before:\n%s\nafter:\n%s", before, after)
			}
			r.WantNoAnswer(rig.Join(rig.VIP4, 80))
			if pins := r.Pins(); len(pins) > 0 {
				t.Errorf("still pinned: %v", pins)
			}
			if r.HasAddress(rig.VIP4) {
				t.Errorf("VIP %s still exists", rig.VIP4)
			}
			out, err := r.LB.Run("tc", "filter", "show", "dev", "client", "ingress")
			if err != nil || out != "" {
				t.Errorf("filters still exist: %s %v", out, err)
			}
			r.WantAnswers("31.31.31.1:5001", "ep1")
			// A second --detach finds nothing to remove.
			r.Restart()
			r.WantAnswers(rig.Join(rig.VIP4, 80), "ep1", "ep2")
		})
	}
}

// awaitLinkLocal waits until the balancer's interfaces have their link-local addresses: the kernel
// adds routes to its addresses at the same time.
func awaitLinkLocal(t testing.TB, h *netnstest.Host) {
	t.Helper()
	labtest.Eventually(t, rig.Patience, func(context.Context) error {
		routes, err := h.Run("ip", "-6", "route", "show", "table", "local")
		if n := strings.Count(routes, "local fe80:"); err == nil && n < len(netnstest.StandardNetworks()) {
			err = fmt.Errorf("%d link-local addresses:\n%s", n, routes)
		}
		return err
	})
}

// networkState returns the parts of a host's network that loxilb may change. It omits queue
// lengths: the kernel sets them when an interface gets its first clsact.
func networkState(t testing.TB, h *netnstest.Host) string {
	t.Helper()
	var all strings.Builder
	for _, command := range []string{
		"ip link", "ip -brief address", "ip rule", "ip -6 rule", "ip route show table all", "ip -6 route show table all",
		"ip neigh show nud permanent", "tc qdisc show", "tc filter show dev client ingress", "tc filter show dev client egress",
		"sysctl net.ipv4.conf net.ipv6.conf net.ipv4.ip_forward", "nft list ruleset",
	} {
		fmt.Fprintf(&all, "%s\n%s\n", command, labtest.Run(t, h, strings.Fields(command)...))
	}
	return strings.ReplaceAll(all.String(), "qlen 1000", "")
}

package netdev

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"loxilb/test/netnstest"
)

func ips(s ...string) []netip.Addr {
	out := make([]netip.Addr, len(s))
	for i, a := range s {
		out[i] = netip.MustParseAddr(a)
	}
	return out
}

// linksWith returns the links of the host that have the address.
func linksWith(t *testing.T, h *netnstest.Host, a string) string {
	t.Helper()
	var links []string
	for line := range strings.Lines(run(t, h, "ip", "-o", "addr", "show")) {
		f := strings.Fields(line)
		if strings.HasPrefix(f[3], a+"/") {
			links = append(links, f[1])
		}
	}
	return strings.Join(links, " ")
}

func setVIPs(t *testing.T, n *Net, vips ...string) {
	t.Helper()
	if failed := n.VIPs().Set(t.Context(), ips(vips...)); failed != nil {
		t.Fatal(failed)
	}
}

func wantLocations(t *testing.T, h *netnstest.Host, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	for a := range want {
		got[a] = linksWith(t, h, a)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("places (-want +got):\n%s", diff)
	}
}

func TestVIPPlaces(t *testing.T) {
	t.Parallel()
	a, _ := pair(t)
	run(t, a, "ip", "link", "set", "lo", "down")
	run(t, a, "ip", "addr", "add", "10.1.0.60/32", "dev", "lo")
	run(t, a, "ip", "addr", "add", "2001:db8:1::60/128", "dev", "lo")
	n := openHost(t, a)
	all := []string{
		"20.20.20.1", "2001:db8:20::1", "10.1.0.50", "2001:db8:1::50",
		"10.1.0.1", "2001:db8:1::1", "10.1.0.60", "2001:db8:1::60",
	}
	setVIPs(t, n, all...)
	setVIPs(t, n, all...)
	want := map[string]string{
		"20.20.20.1": "lo", "2001:db8:20::1": "lo",
		"10.1.0.50": "lo", "2001:db8:1::50": "lo eth0", // ARP answers for addresses of lo, neighbour discovery does not
		"10.1.0.1": "eth0", "2001:db8:1::1": "eth0", // left alone
		"10.1.0.60": "lo", "2001:db8:1::60": "lo eth0",
	}
	wantLocations(t, a, want)
	if l, _ := n.named("lo"); l.Up {
		t.Error("the mirror has changed before Run")
	}
	if diff := cmp.Diff(ips("10.1.0.50", "20.20.20.1", "2001:db8:1::50", "2001:db8:1::60", "2001:db8:20::1"),
		n.VIPs().Owned(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("the owned VIPs differ (-want +got):\n%s", diff)
	}

	// A restarted daemon recognizes its addresses, and removes unused ones.
	if failed := n.VIPs().Add(t.Context(), ips("20.20.20.2")...); failed != nil {
		t.Fatal(failed)
	}
	again := openHost(t, a)
	setVIPs(t, again, all[1:]...)
	want["20.20.20.1"], want["20.20.20.2"] = "", ""
	wantLocations(t, a, want)
	if failed := again.VIPs().Remove(t.Context(), ips(all...)...); failed != nil {
		t.Fatal(failed)
	}
	wantLocations(t, a, map[string]string{
		"20.20.20.1": "", "2001:db8:20::1": "", "10.1.0.50": "", "2001:db8:1::50": "",
		"10.1.0.1": "eth0", "2001:db8:1::1": "eth0", "10.1.0.60": "lo", "2001:db8:1::60": "lo",
	})
}

// TestVIPAnswers checks that other hosts resolve every VIP by ARP or neighbour discovery, also
// after the daemon has ended, and that the machine's own packets never have a VIP as their source.
func TestVIPAnswers(t *testing.T) {
	t.Parallel()
	for _, ignore := range []string{"0", "1", "2"} {
		t.Run("arp_ignore="+ignore, func(t *testing.T) {
			t.Parallel()
			a, b := pair(t)
			if err := a.Sysctl("net/ipv4/conf/eth0/arp_ignore", ignore); err != nil {
				t.Fatal(err)
			}
			n, err := OpenAt(a.Path(), nil)
			if err != nil {
				t.Fatal(err)
			}
			setVIPs(t, n, "10.1.0.50", "2001:db8:1::50", "20.20.20.1", "2001:db8:20::1")
			if err := n.Close(); err != nil {
				t.Fatal(err)
			}
			mac, err := a.MAC("eth0")
			if err != nil {
				t.Fatal(err)
			}
			for _, vip := range []string{"10.1.0.50", "2001:db8:1::50"} {
				run(t, b, "ip", "neigh", "replace", vip, "dev", "eth0", "use")
				eventually(t, func() error {
					if out := run(t, b, "ip", "neigh", "show", vip); !strings.Contains(out, mac.String()) {
						return fmt.Errorf("%s is not resolved: %s", vip, out)
					}
					return nil
				})
			}
			run(t, b, "ip", "route", "add", "20.20.20.1", "via", "10.1.0.1")
			run(t, b, "ip", "route", "add", "2001:db8:20::1", "via", "2001:db8:1::1")
			for _, to := range []string{"10.1.0.2", "2001:db8:1::2"} {
				if out := run(t, a, "ip", "route", "get", to); !strings.Contains(out, "src "+strings.TrimSuffix(to, "2")+"1 ") {
					t.Errorf("source towards %s: %s", to, out)
				}
			}
		})
	}
}

// TestVIPFollows checks that a VIP moves when addresses and links change.
func TestVIPFollows(t *testing.T) {
	t.Parallel()
	a, _ := pair(t)
	n, _ := runHost(t, a)
	setVIPs(t, n, "10.1.0.1", "2001:db8:1::50", "2001:db8:2::50", "20.20.20.1")
	wantLinks := func(want map[string]string) {
		t.Helper()
		eventually(t, func() error {
			for vip, links := range want {
				if got := linksWith(t, a, vip); got != links {
					return fmt.Errorf("%s is on %q, want %q", vip, got, links)
				}
			}
			return nil
		})
	}
	wantLinks(map[string]string{"10.1.0.1": "eth0", "2001:db8:1::50": "lo eth0", "2001:db8:2::50": "lo"})
	run(t, a, "ip", "addr", "add", "2001:db8:2::1/64", "dev", "eth0", "nodad")
	wantLinks(map[string]string{"2001:db8:2::50": "lo eth0"})
	run(t, a, "ip", "addr", "del", "2001:db8:2::1/64", "dev", "eth0")
	wantLinks(map[string]string{"2001:db8:2::50": "lo"})
	run(t, a, "ip", "addr", "del", "10.1.0.1/24", "dev", "eth0")
	wantLinks(map[string]string{"10.1.0.1": "lo"})
	run(t, a, "ip", "addr", "flush", "dev", "lo", "to", "20.20.20.1")
	wantLinks(map[string]string{"20.20.20.1": "lo"})
	run(t, a, "ip", "link", "set", "eth0", "down") // removes all IPv6 addresses
	run(t, a, "ip", "link", "set", "eth0", "up")
	run(t, a, "ip", "addr", "replace", "2001:db8:1::1/64", "dev", "eth0", "nodad")
	wantLinks(map[string]string{"2001:db8:1::50": "lo eth0"})
	run(t, a, "ip", "link", "set", "lo", "down")
	run(t, a, "ip", "link", "set", "lo", "up")
	wantLinks(map[string]string{"2001:db8:1::50": "lo eth0", "2001:db8:2::50": "lo", "20.20.20.1": "lo"})
	run(t, a, "ip", "link", "del", "eth0")
	wantLinks(map[string]string{"2001:db8:1::50": "lo"})
}

// TestVIPsKeepNextHops checks that adding and removing VIPs does not expire the cached next hops of
// connections.
func TestVIPsKeepNextHops(t *testing.T) {
	t.Parallel()
	a, _ := pair(t)
	n, r := runHost(t, a)
	setVIPs(t, n, "20.20.20.9")
	r.awaitSurvey(t)
	r.expiresNextHops(t, a, 1, func() {}) // waits for earlier changes
	if r.expiresNextHops(t, a, 2, func() {
		setVIPs(t, n, "20.20.20.1", "2001:db8:20::1", "10.1.0.50", "2001:db8:1::50")
		setVIPs(t, n)
	}) {
		t.Error("adding and removing VIPs expires next hops")
	}
}

// TestManyVIPs checks that the cost of a change does not depend on 10,000 other VIPs.
func TestManyVIPs(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	n := openHost(t, a)
	stop := startRun(t, n, newRecorder())
	var vips []netip.Addr
	for i := range 5000 {
		vips = append(vips, netip.AddrFrom4([4]byte{20, byte(i >> 8), byte(i), 1}),
			netip.MustParseAddr(fmt.Sprintf("2001:db8:20::%x", i+1)))
	}
	timed := func(what string, f func(context.Context) map[netip.Addr]error) time.Duration {
		t.Helper()
		start := time.Now()
		if failed := f(t.Context()); failed != nil {
			t.Fatal(failed)
		}
		took := time.Since(start)
		t.Logf("%s: %v", what, took)
		return took
	}
	all := timed("10,000", func(ctx context.Context) map[netip.Addr]error { return n.VIPs().Set(ctx, vips) })
	one := ips("30.0.0.1", "2001:db8:30::1")
	if few := timed("two more", func(ctx context.Context) map[netip.Addr]error { return n.VIPs().Add(ctx, one...) }); few > all/2 {
		t.Errorf("two more took %v, and all %v", few, all)
	}
	if got := len(n.VIPs().Owned()); got != 10002 {
		t.Errorf("%d owned", got)
	}
	for i, vip := range one {
		run(t, b, "ip", "route", "add", vip.String(), "via", []string{"10.1.0.1", "2001:db8:1::1"}[i])
		out := run(t, a, "ip", "route", "get", vip.String())
		if !strings.HasPrefix(out, "local") {
			t.Errorf("%s is not local: %s", vip, out)
		}
	}
	stop()
	again := openHost(t, a)
	if got := len(again.VIPs().Owned()); got != 10002 {
		t.Errorf("%d found again", got)
	}
	timed("one away", func(ctx context.Context) map[netip.Addr]error { return again.VIPs().Remove(ctx, one[0]) })
	timed("all away", func(ctx context.Context) map[netip.Addr]error { return again.VIPs().Set(ctx, nil) })
	if out := run(t, a, "ip", "route", "show", "table", "local", "proto", "108"); out != "" {
		t.Errorf("left: %.200s", out)
	}
}

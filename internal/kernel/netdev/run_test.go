package netdev

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestWatchLinks(t *testing.T) {
	t.Parallel()
	a, _ := pair(t)
	n, r := runHost(t, a)

	step := func(what string, ok func() bool, args ...string) {
		t.Helper()
		before := r.linkEvents()
		start := time.Now()
		run(t, a, args...)
		eventually(t, func() error {
			if r.linkEvents() == before || !ok() {
				return fmt.Errorf("%s: not seen", what)
			}
			return nil
		})
		t.Logf("%s: seen %v after the command started", what, time.Since(start))
	}
	exists := func(name string) bool {
		_, err := n.named(name)
		return err == nil
	}
	up := func(name string) bool {
		l, _ := n.named(name)
		return l.Up
	}
	step("new", func() bool { return exists("v0") && exists("v1") }, "ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1")
	step("up", func() bool { return up("v0") }, "ip", "link", "set", "v0", "up")
	step("down", func() bool { return !up("v0") }, "ip", "link", "set", "v0", "down")
	step("renamed", func() bool { return exists("w0") && !exists("v0") }, "ip", "link", "set", "v0", "name", "w0")
	step("deleted", func() bool { return !exists("w0") && !exists("v1") }, "ip", "link", "del", "w0")
}

// TestNextHops checks that changes that can affect a cached next hop are reported, and others are
// not.
func TestNextHops(t *testing.T) {
	t.Parallel()
	a, _ := pair(t)
	_, r := runHost(t, a)
	r.awaitSurvey(t)

	marker := 0
	seen := func(args ...string) bool {
		t.Helper()
		marker++
		return r.expiresNextHops(t, a, marker, func() { run(t, a, args...) })
	}
	neigh := func(mac, state string) []string {
		return []string{"ip", "neigh", "replace", "10.1.0.9", "dev", "eth0", "lladdr", mac, "nud", state}
	}
	const mac1, mac2 = "02:00:00:00:00:01", "02:00:00:00:00:02"
	steps := []struct {
		what string
		args []string
		news bool
	}{
		{"marker alone", []string{"true"}, false},
		{"first resolved", neigh(mac1, "reachable"), false},
		{"grows stale", neigh(mac1, "stale"), false},
		{"confirmed", neigh(mac1, "reachable"), false},
		{"another MAC", neigh(mac2, "reachable"), true},
		{"fails", []string{"ip", "neigh", "change", "10.1.0.9", "dev", "eth0", "nud", "failed"}, false},
		{"comes back", neigh(mac2, "reachable"), false},
		{"deleted", []string{"ip", "neigh", "del", "10.1.0.9", "dev", "eth0"}, false},
		{"comes back as another", neigh(mac1, "permanent"), true},
		{"route", []string{"ip", "route", "add", "10.9.0.0/16", "via", "10.1.0.9"}, true},
		{"route away", []string{"ip", "route", "del", "10.9.0.0/16"}, true},
		{"IPv6 route", []string{"ip", "route", "add", "2001:db8:9::/48", "via", "2001:db8:1::9"}, true},
		{"address", []string{"ip", "addr", "add", "10.7.0.1/24", "dev", "eth0"}, true},
		{"MTU", []string{"ip", "link", "set", "eth0", "mtu", "1400"}, true},
		{"MAC of a link", []string{"ip", "link", "set", "eth0", "addr", "02:00:00:00:00:77"}, true},
		{"rule", []string{"ip", "rule", "add", "from", "10.9.0.1", "table", "100"}, true},
	}
	seen("ip", "link", "set", "lo", "up")
	eventually(t, func() error { // the kernel completes addresses of new interfaces later
		if seen("true") {
			return errors.New("changes of the start are still reported")
		}
		return nil
	})
	for _, s := range steps {
		if got := seen(s.args...); got != s.news {
			t.Errorf("%s: next hops may have changed: %v, want %v", s.what, got, s.news)
		}
	}
}

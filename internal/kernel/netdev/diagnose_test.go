package netdev

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"loxilb/internal/event"
	"loxilb/test/await"
)

func TestDiagnose(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	run(t, a, "sysctl", "-w", "net.ipv6.conf.lo.disable_ipv6=1")
	run(t, a, "sysctl", "-w", "net.ipv4.neigh.eth0.retrans_time_ms=50", "net.ipv6.neigh.eth0.retrans_time_ms=50")
	run(t, a, "ip", "route", "add", "unreachable", "10.66.0.0/16")
	n, r := runHost(t, a)
	events := r.hub.Subscribe(event.KindObject)
	wantProblem := func(want bool, words string) {
		t.Helper()
		eventually(t, func() error {
			problems := n.Diagnose()
			has := slices.ContainsFunc(problems, func(p Problem) bool { return strings.Contains(p.What, words) && p.Hint != "" })
			if has != want {
				return fmt.Errorf("problem %q: %v, want %v; all: %+v", words, has, want, problems)
			}
			return nil
		})
	}
	failed := n.VIPs().Set(t.Context(), ips("10.1.0.50", "2001:db8:20::1"))
	if bad := ips("2001:db8:20::1")[0]; len(failed) != 1 || failed[bad] == nil {
		t.Errorf("failed: %v, and only %s could not be placed", failed, bad)
	}
	n.Neighbours().Set(slices.Values(ips("10.250.0.1", "10.66.0.1", "10.1.0.1", "10.1.0.50", "10.1.0.77", "2001:db8:1::77")))
	wantProblem(true, "there is no route to endpoint 10.250.0.1")
	if err := n.Neighbours().RouteError(ips("10.250.0.1")[0]); err == nil || !strings.Contains(err.Error(), "no route") {
		t.Errorf("10.250.0.1, without a route: %v", err)
	}
	if err := n.Neighbours().RouteError(ips("10.1.0.77")[0]); err != nil {
		t.Errorf("10.1.0.77, in a connected network: %v", err)
	}
	wantProblem(true, "the route to endpoint 10.66.0.1 refuses packets")
	wantProblem(true, "endpoint 10.1.0.50 is a VIP of this load balancer, and no service is there")
	wantProblem(false, "endpoint 10.1.0.1 ")
	wantProblem(true, "10.1.0.77 on eth0, the next hop to endpoint 10.1.0.77, does not answer ARP")
	await.Steady(t, time.Second, func() error {
		if !slices.ContainsFunc(n.Diagnose(), func(p Problem) bool {
			return strings.Contains(p.What, "to endpoint 10.1.0.77, does not answer")
		}) {
			return errors.New("the problem disappears while the kernel requests the address again")
		}
		return nil
	})
	wantProblem(true, "2001:db8:1::77 on eth0, the next hop to endpoint 2001:db8:1::77, does not answer neighbour discovery")
	wantProblem(true, "VIP 2001:db8:20::1 cannot be added to lo: IPv6 is switched off there")

	wantEvent := func(want event.Object) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		for {
			e, _, err := events.Next(ctx)
			if err != nil {
				t.Fatalf("no event %+v: %v", want, err)
			}
			if o := e.Body.(event.Object); o.Object() == want.Object() && o.Action == want.Action && strings.Contains(o.Error, want.Error) {
				return
			}
		}
	}
	wantEvent(event.Object{ObjectKind: "endpoint", Key: "10.250.0.1", Action: event.Failed, Error: "ip route add 10.250.0.1 via GATEWAY"})
	if !slices.ContainsFunc(n.Problems(), func(k KnownProblem) bool {
		return k.Kind == "endpoint" && k.Key == "10.250.0.1" && !k.Since.IsZero()
	}) {
		t.Errorf("not known: %+v", n.Problems())
	}
	run(t, a, "ip", "route", "add", "10.250.0.0/16", "via", "10.1.0.2")
	wantProblem(false, "10.250.0.1")
	wantEvent(event.Object{ObjectKind: "endpoint", Key: "10.250.0.1", Action: event.Solved, Error: "no route"})
	run(t, b, "ip", "addr", "add", "10.1.0.77/24", "dev", "eth0")
	wantProblem(false, "does not answer ARP")
	run(t, a, "sysctl", "-w", "net.ipv6.conf.lo.disable_ipv6=0")
	setVIPs(t, n, "10.1.0.50", "2001:db8:20::1")
	wantProblem(false, "VIP 2001:db8:20::1")
	run(t, a, "sysctl", "-w", "net.ipv4.conf.all.arp_ignore=8")
	wantProblem(true, "eth0 does not answer ARP for VIPs such as 10.1.0.50: its arp_ignore is 8")
	run(t, b, "ip", "link", "set", "eth0", "down")
	wantProblem(true, "interface eth0, which leads to endpoint 10.1.0.77, has no carrier")
}

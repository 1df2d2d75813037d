package network_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest/labtest"
)

// tunnelPolicy is an IPsec policy for packets with an outer header to the endpoint.
type tunnelPolicy struct {
	name      string
	policy    string // after "ip xfrm policy add dir out"
	ipip, gue bool   // whether connections in these tunnels are refused
}

func tunnelPolicies() []tunnelPolicy {
	return []tunnelPolicy{
		{name: "protocol 4", policy: "dst 31.31.31.1 proto 4 action block", ipip: true},
		{name: "port of GUE", policy: "dst 31.31.31.1 proto udp dport 6080 action block", gue: true},
		{name: "another port", policy: "dst 31.31.31.1 proto udp dport 6081 action block"},
		{name: "this machine's address", policy: "src 31.31.31.254 dst 31.31.31.1 action block", gue: true},
		{name: "sources of ipip", policy: "src 198.18.0.0/15 dst 31.31.31.1 action block", ipip: true},
		{name: "ESP", policy: "src 0.0.0.0/0 dst 31.31.31.1 tmpl proto esp mode transport", ipip: true, gue: true},
		{name: "inner header", policy: "dst 20.20.20.1 action block", ipip: true, gue: true},
		{name: "another endpoint", policy: "dst 32.32.32.1 action block"},
	}
}

// TestIPsecTunnels checks that policies also apply to the outer header of tunnelled packets.
func TestIPsecTunnels(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Before: rig.ConfigureDirectReturn})
	createTunnelServices(r)
	for _, p := range tunnelPolicies() {
		wantTunnels(t, r, p.name+": before it", false, false)
		rig.MustRun(t, r.LB, "sh", "-c", "ip xfrm policy add dir out "+p.policy)
		// The drops of a policy for another service show that the daemon has read all policies.
		rig.MustRun(t, r.LB, "ip", "xfrm", "policy", "add", "dir", "out", "dst", "17.17.17.1", "action", "block")
		r.EventuallyShows("get status --failed -o json", "17.17.17.1")
		wantTunnels(t, r, p.name, p.ipip, p.gue)
		rig.MustRun(t, r.LB, "ip", "xfrm", "policy", "flush")
	}
}

// createTunnelServices creates a service for each kind of tunnel, at the ports 7000 (ipip) and 7001
// (gue), and a service of another endpoint without a tunnel.
func createTunnelServices(r *rig.Rig) {
	r.T.Helper()
	rig.Decapsulate(r, "198.18.0.0/15,31.31.31.254")
	for _, port := range []int{7000, 7001} {
		at := rig.Join(rig.VIP4, port)
		r.ServeSource(r.Endpoints[0], at, at)
	}
	r.Loxicmd("create lb %s --tcp=7000:7000 --endpoints=31.31.31.1:1 --mode=dsr --tunnel=ipip", rig.VIP4)
	r.Loxicmd("create lb %s --tcp=7001:7001 --endpoints=31.31.31.1:1 --mode=dsr --tunnel=gue", rig.VIP4)
	r.Loxicmd("create lb 20.20.20.9 --tcp=80:5001 --endpoints=17.17.17.1:1")
}

// wantTunnels checks whether new connections in each kind of tunnel are refused (true) or served.
func wantTunnels(t *testing.T, r *rig.Rig, when string, ipip, gue bool) {
	t.Helper()
	for _, c := range []struct {
		tunnel  string
		port    int
		refused bool
	}{{"ipip", 7000, ipip}, {"gue", 7001, gue}} {
		labtest.Eventually(t, rig.Patience, func(ctx context.Context) error {
			for range 3 {
				if err := connect(ctx, r, c.port); (err != nil) != c.refused {
					return fmt.Errorf("%s: a connection in %s is refused: %t, want %t", when, c.tunnel, err != nil, c.refused)
				}
			}
			return nil
		})
	}
}

// connect opens a connection from the client to a port of the VIP, and closes it.
func connect(ctx context.Context, r *rig.Rig, port int) error {
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	conn, err := r.Client.DialContext(ctx, "tcp", rig.Join(rig.VIP4, port))
	if err != nil {
		return err
	}
	return conn.Close()
}

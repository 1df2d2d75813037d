package network_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// TestTraceLayer3 checks that trace shows packets of interfaces without a link layer, and outgoing
// replies of an endpoint on this machine.
func TestTraceLayer3(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Before: tunPair})
	r.ServeNames()
	if err := r.LB.ServeHTTPWith(":5001", rig.NameHandler("lb")); err != nil {
		t.Fatal(err)
	}
	for _, vip := range []string{rig.VIP4, rig.VIP6} {
		own := map[string]string{rig.VIP4: "31.31.31.254", rig.VIP6: "[2001:db8:31::fe]"}[vip]
		r.Loxicmd("create lb %s --tcp=2020:5001 --endpoints=%s --name=far", vip, map[string]string{rig.VIP4: "31.31.31.1:1", rig.VIP6: "[2001:db8:31::1]:1"}[vip])
		r.Loxicmd("create lb %s --tcp=2021:5001 --endpoints=%s:1 --name=near", vip, own)
	}
	far, near := startTrace(t, r, "port 2020"), startTrace(t, r, "port 2021")
	for _, vip := range []string{rig.VIP4, rig.VIP6} {
		r.WantAnswers(rig.Join(vip, 2020), "ep1")
		r.WantAnswers(rig.Join(vip, 2021), "lb")
	}
	awaitOutput(t, far,
		`^in tun0 tcp 10\.9\.0\.2:\d+ > 20\.20\.20\.1:2020 S .*\nout ep1 tcp 10\.9\.0\.2:\d+ > 31\.31\.31\.1:5001 S .*# forward`,
		`^in tun0 tcp \[2001:db8:9::2\]:\d+ > \[2001:db8:20::1\]:2020 S .*\nout ep1 tcp \[2001:db8:9::2\]:\d+ > \[2001:db8:31::1\]:5001 S .*# forward`,
		`^in ep1 tcp 31\.31\.31\.1:5001 > 10\.9\.0\.2:\d+ SA .*\nout tun0 tcp 20\.20\.20\.1:2020 > 10\.9\.0\.2:\d+ SA .*# forward`)
	awaitOutput(t, near,
		`^pass tun0 tcp 31\.31\.31\.254:5001 > 10\.9\.0\.2:\d+ SA .* egress\nout kernel tcp 20\.20\.20\.1:2021 > 10\.9\.0\.2:\d+ SA `,
		`^pass tun0 tcp \[2001:db8:31::fe\]:5001 > \[2001:db8:9::2\]:\d+ SA .* egress\nout kernel tcp \[2001:db8:20::1\]:2021 > \[2001:db8:9::2\]:\d+ SA `)
}

// startTrace starts a trace in the balancer's namespace.
func startTrace(t testing.TB, r *rig.Rig, words string) *netnstest.Process {
	t.Helper()
	p, err := r.LB.Start(netnstest.Command{Args: append([]string{rig.Program("loxicmd"), "trace"}, strings.Fields(words)...)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	awaitOutput(t, p, "tracing")
	return p
}

// awaitOutput waits until the output of a process matches all patterns.
func awaitOutput(t testing.TB, p *netnstest.Process, patterns ...string) {
	t.Helper()
	for _, pattern := range patterns {
		labtest.Eventually(t, 3*rig.Patience, func(context.Context) error {
			if out := p.Output(); !regexp.MustCompile("(?m)" + pattern).MatchString(out) {
				return fmt.Errorf("no %s:\n%.4000s", pattern, out)
			}
			return nil
		})
	}
}

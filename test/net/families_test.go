package net_test

import (
	"strings"
	"testing"

	"loxilb/internal/netnstest"
)

// crossing are services of one IP version with endpoints of the other: what a client dials, and what its endpoint
// listens at and sees.
func crossing() []struct{ vip, endpoint, towards string } {
	return []struct{ vip, endpoint, towards string }{
		{vip6, "31.31.31.1", "31.31.31.254"},
		{vip4, "[2001:db8:31::1]", "2001:db8:31::fe"},
	}
}

// TestFamilies: clients of one IP version reach endpoints that have the other only, over TCP and UDP, in each mode, and
// the endpoints see the load balancer's address of their own.
func TestFamilies(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	serveSources(r)
	own := map[string]string{vip6: "20.20.20.77", vip4: "2001:db8:20::77"}
	for _, f := range crossing() {
		for _, network := range []string{"tcp", "udp"} {
			for _, m := range []struct{ flags, sees string }{
				{"", f.towards},
				{"--mode=onearm", f.towards},
				{"--mode=fullnat --snat=" + own[f.vip], own[f.vip]},
			} {
				r.loxicmd("create lb %s --%s=7000:7000 --endpoints=%s:1 %s", f.vip, network, f.endpoint, m.flags)
				r.sees(r.Client, network, join(f.vip, 7000), m.sees)
			}
		}
		if ct := r.loxicmd("get ct"); !strings.Contains(ct, f.towards) {
			t.Errorf("get ct does not tell of %s:\n%s", f.towards, ct)
		}
	}
	if _, err := r.Command(strings.Fields("create lb " + vip6 + " --tcp=7000:7000 --endpoints=31.31.31.1:1 --mode=fullnat")...); err == nil ||
		!strings.Contains(err.Error(), "is IPv4, and mode fullnat shows it the VIP, which is IPv6") {
		t.Errorf("full NAT without an address of the endpoint's IP version: %v", err)
	}
}

// TestFamiliesMixed: one service has endpoints of both IP versions, and takes them in turn.
func TestFamiliesMixed(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	r.serveNames()
	for _, vip := range []string{vip4, vip6} {
		r.loxicmd("create lb %s --tcp=80:5001 --endpoints=31.31.31.1:1,[2001:db8:32::1]:1,17.17.17.1:1", vip)
		r.wantAnswers(join(vip, 80), "ep1", "ep2", "ep3", "ep1", "ep2", "ep3")
	}
}

// TestFamiliesTransfer: 64 MiB each way, whole, in packets of many segments or of one, whoever owes the checksum.
func TestFamiliesTransfer(t *testing.T) {
	t.Parallel()
	const bytes = 64 << 20
	for name, o := range map[string]options{
		"offloads":    {},
		"no offloads": {before: offloadsOff},
		"no peer":     {args: []string{"--redirect-peer=false"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, o)
			if err := r.Endpoints[0].ServeTCP(":5001", serveTransfer(bytes)); err != nil {
				t.Fatal(err)
			}
			for _, f := range crossing() {
				r.loxicmd("create lb %s --tcp=9:5001 --endpoints=%s:1", f.vip, f.endpoint)
				if err := transfer(r.dial(join(f.vip, 9)), bytes); err != nil {
					t.Errorf("%s: %v", f.vip, err)
				}
				var packets float64
				for _, way := range []string{"in", "out"} {
					packets += r.metric("service_traffic_packets_total", "direction="+way, "service="+join(f.vip, 9)+"/tcp")
				}
				if o.before == nil && packets > 2*bytes/8000 {
					t.Errorf("%s: %v packets for 128 MiB: segments were cut on their way", f.vip, packets)
				}
				t.Logf("%s: %v packets", f.vip, packets)
			}
			for _, h := range []*netnstest.Host{r.Client, r.Endpoints[0]} {
				if n := checksumErrors(t, h); n > 0 {
					t.Errorf("%s has got %d packets with wrong sums", h.Name, n)
				}
			}
		})
	}
}

package services_test

import (
	"testing"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
)

// TestHTTP checks that requests to the VIP go to the endpoints in the configured order, and that
// endpoints see the client's address: over both IP versions, with both hooks and different MTUs,
// with and without bpf_redirect_peer.
func TestHTTP(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]rig.Options{
		"tcx":           {Args: []string{"--attach", "tcx"}},
		"clsact":        {Args: []string{"--attach", "clsact"}},
		"noPeer":        {Args: []string{"--redirect-peer=false"}},
		"mtu9000":       {Options: netnstest.Options{MTU: 9000}},
		"forwarding":    {Options: netnstest.Options{Forwarding: true}},
		"rpFilter":      {Before: enableStrictRPF},
		"clsact noPeer": {Args: []string{"--attach", "clsact", "--redirect-peer=false"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, o)
			r.ServeNames()
			r.Loxicmd("create lb %s --tcp=2020:5001 --endpoints=%s", rig.VIP4, rig.Endpoints4())
			r.Loxicmd("create lb %s --tcp=2020:5001 --endpoints=%s", rig.VIP6, rig.Endpoints6())
			for _, vip := range []string{rig.VIP4, rig.VIP6} {
				r.WantAnswers(rig.Join(vip, 2020), "ep1", "ep2", "ep3", "ep1", "ep2", "ep3", "ep1")
				client := netnstest.StandardNetworks()[0]
				want := " sees " + client.V4.Addr().String()
				if vip == rig.VIP6 {
					want = " sees " + client.V6.Addr().String()
				}
				if who, err := r.Ask(rig.Join(vip, 2020)); err != nil || who != "ep2"+want {
					t.Errorf("answer %q, error %v; want %q", who, err, "ep2"+want)
				}
			}
			r.Loxicmd("delete lb %s --tcp=2020", rig.VIP4)
			r.WantNoAnswer(rig.Join(rig.VIP4, 2020))
			r.WantAnswers(rig.Join(rig.VIP6, 2020), "ep3")
		})
	}
}

// enableStrictRPF enables strict reverse path filtering in the balancer.
func enableStrictRPF(t testing.TB, s *netnstest.Standard) {
	for _, where := range []string{"all", "default", "client", "ep1", "ep2", "ep3"} {
		if err := s.LB.Sysctl("net/ipv4/conf/"+where+"/rp_filter", "1"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWeights checks that ten connections are spread exactly by weights 5, 3 and 2, and
// interleaved. An endpoint of weight 0 gets none.
func TestWeights(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	r.ServeNames()
	r.Loxicmd("create lb %s --tcp=80:5001 --select=priority --endpoints=%s", rig.VIP4, rig.Endpoints4(5, 3, 2))
	for range 2 {
		r.WantAnswers(rig.VIP4+":80", "ep1", "ep2", "ep3", "ep1", "ep1", "ep2", "ep1", "ep3", "ep2", "ep1")
	}
	r.Loxicmd("create lb %s --tcp=81:5001 --endpoints=%s", rig.VIP4, rig.Endpoints4(1, 0, 1))
	r.WantAnswers(rig.VIP4+":81", "ep1", "ep3", "ep1", "ep3")
}

// TestSeveralPairs checks that one command creates two services.
func TestSeveralPairs(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	r.ServeNames()
	r.Loxicmd("create lb %s --tcp=80:5001,443:5001 --endpoints=%s", rig.VIP4, rig.Endpoints4())
	r.WantAnswers(rig.VIP4+":80", "ep1", "ep2")
	r.WantAnswers(rig.VIP4+":443", "ep1", "ep2")
	r.WantNoAnswer(rig.VIP4 + ":81")
}

// TestOtherTraffic checks that the kernel handles packets of no service: the balancer forwards
// them, answers pings, and serves its own sockets, also at another port of a VIP that is its own
// address.
//
// P16 Packets of no service go to the kernel unchanged
func TestOtherTraffic(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{Options: netnstest.Options{Forwarding: true}})
	r.ServeNames()
	if err := r.LB.ServeHTTP(":8080"); err != nil {
		t.Fatal(err)
	}
	r.Loxicmd("create lb 100.100.100.254 --tcp=2020:5001 --endpoints=%s", rig.Endpoints4())
	r.WantAnswers("100.100.100.254:2020", "ep1")
	r.WantAnswers("100.100.100.254:8080", "lb")
	r.WantAnswers("[2001:db8:100::fe]:8080", "lb")
	r.WantAnswers("32.32.32.1:5001", "ep2")
	r.WantAnswers("[2001:db8:32::1]:5001", "ep2")
	for _, a := range []string{"100.100.100.254", "2001:db8:100::fe", "17.17.17.1", "2001:db8:17::1"} {
		if _, err := r.Client.Run("ping", "-c1", "-W2", a); err != nil {
			t.Error(err)
		}
	}
	// The balancer also forwards connections that endpoints open to the client's network.
	if err := r.Client.ServeHTTP(":80"); err != nil {
		t.Fatal(err)
	}
	if who, err := r.Endpoints[0].Get(t.Context(), "100.100.100.1:80"); err != nil || who != "client" {
		t.Errorf("from ep1 to the client: %q, %v", who, err)
	}
}

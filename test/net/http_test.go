package net_test

import (
	"fmt"
	"net"
	"net/http"
	"testing"

	"loxilb/internal/netnstest"
)

// nameHandler answers with the endpoint's name and the address that it sees the request come from.
func nameHandler(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, _, _ := net.SplitHostPort(r.RemoteAddr)
		_, _ = fmt.Fprintf(w, "%s sees %s\n", name, from)
	})
}

// TestHTTP: requests to the VIP go round the endpoints in the order written, by both families, both hooks and both
// MTUs, with and without bpf_redirect_peer; the client's address is kept.
func TestHTTP(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]options{
		"tcx":           {args: []string{"--attach", "tcx"}},
		"clsact":        {args: []string{"--attach", "clsact"}},
		"noPeer":        {args: []string{"--redirect-peer=false"}},
		"mtu9000":       {Options: netnstest.Options{MTU: 9000}},
		"forwarding":    {Options: netnstest.Options{Forwarding: true}},
		"rpFilter":      {before: strictReversePath},
		"clsact noPeer": {args: []string{"--attach", "clsact", "--redirect-peer=false"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, o)
			r.serveNames()
			r.loxicmd("create lb %s --tcp=2020:5001 --endpoints=%s", vip4, endpoints4())
			r.loxicmd("create lb %s --tcp=2020:5001 --endpoints=%s", vip6, endpoints6())
			for _, vip := range []string{vip4, vip6} {
				r.wantAnswers(join(vip, 2020), "ep1", "ep2", "ep3", "ep1", "ep2", "ep3", "ep1")
				client := netnstest.StandardNetworks()[0]
				want := " sees " + client.V4.Addr().String()
				if vip == vip6 {
					want = " sees " + client.V6.Addr().String()
				}
				if who, err := r.ask(join(vip, 2020)); err != nil || who != "ep2"+want {
					t.Errorf("answer %q, error %v; want %q", who, err, "ep2"+want)
				}
			}
			r.loxicmd("delete lb %s --tcp=2020", vip4)
			r.wantNoAnswer(join(vip4, 2020))
			r.wantAnswers(join(vip6, 2020), "ep3")
		})
	}
}

// strictReversePath switches strict reverse path filtering on.
func strictReversePath(t testing.TB, s *netnstest.Standard) {
	for _, where := range []string{"all", "default", "client", "ep1", "ep2", "ep3"} {
		if err := s.LB.Sysctl("net/ipv4/conf/"+where+"/rp_filter", "1"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWeights: 5, 3 and 2 give exactly that in ten connections, smoothly; weight 0 gets none.
func TestWeights(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	r.serveNames()
	r.loxicmd("create lb %s --tcp=80:5001 --select=priority --endpoints=%s", vip4, endpoints4(5, 3, 2))
	for range 2 {
		r.wantAnswers(vip4+":80", "ep1", "ep2", "ep3", "ep1", "ep1", "ep2", "ep1", "ep3", "ep2", "ep1")
	}
	r.loxicmd("create lb %s --tcp=81:5001 --endpoints=%s", vip4, endpoints4(1, 0, 1))
	r.wantAnswers(vip4+":81", "ep1", "ep3", "ep1", "ep3")
}

// TestSeveralPairs: one command makes two services.
func TestSeveralPairs(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	r.serveNames()
	r.loxicmd("create lb %s --tcp=80:5001,443:5001 --endpoints=%s", vip4, endpoints4())
	r.wantAnswers(vip4+":80", "ep1", "ep2")
	r.wantAnswers(vip4+":443", "ep1", "ep2")
	r.wantNoAnswer(vip4 + ":81")
}

// TestOtherTraffic: what is for no service passes: the balancer routes, answers pings and serves its own sockets, also
// at another port of a VIP that is its own address.
//
// P16 packets of no service are left to the kernel as they came
func TestOtherTraffic(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{Options: netnstest.Options{Forwarding: true}})
	r.serveNames()
	if err := r.LB.ServeHTTP(":8080"); err != nil {
		t.Fatal(err)
	}
	r.loxicmd("create lb 100.100.100.254 --tcp=2020:5001 --endpoints=%s", endpoints4())
	r.wantAnswers("100.100.100.254:2020", "ep1")
	r.wantAnswers("100.100.100.254:8080", "lb")
	r.wantAnswers("[2001:db8:100::fe]:8080", "lb")
	r.wantAnswers("32.32.32.1:5001", "ep2")
	r.wantAnswers("[2001:db8:32::1]:5001", "ep2")
	for _, a := range []string{"100.100.100.254", "2001:db8:100::fe", "17.17.17.1", "2001:db8:17::1"} {
		if _, err := r.Client.Run("ping", "-c1", "-W2", a); err != nil {
			t.Error(err)
		}
	}
	// The endpoints' own connections to the client's network are none of ours either.
	if err := r.Client.ServeHTTP(":80"); err != nil {
		t.Fatal(err)
	}
	if who, err := r.Endpoints[0].Get(t.Context(), "100.100.100.1:80"); err != nil || who != "client" {
		t.Errorf("from ep1 to the client: %q, %v", who, err)
	}
}

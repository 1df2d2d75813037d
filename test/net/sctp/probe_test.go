package sctp_test

import (
	"testing"

	"loxilb/test/net/rig"
	"loxilb/test/sctptest"
)

// TestProbes checks, in each mode and over both IP versions, that endpoints with a server are up,
// and that two others are down: the host of one has no SCTP, and the other one answers by ABORT.
func TestProbes(t *testing.T) {
	t.Parallel()
	r := rig.Shared(t)
	server := sctptest.Serve(t, r.Endpoints[0], port)
	sctptest.Serve(t, r.Endpoints[1], port+1)
	for i, s := range translations() {
		r.Loxicmd("create lb %s --sctp=%d:%d --endpoints=%s %s --monitor --probe-interval=200ms", s.vip, 2020+i, port, s.endpoints, s.flags)
	}
	for _, name := range []string{"31.31.31.1_sctp_5001", "2001:db8:31::1_sctp_5001"} {
		r.EventuallyShows("get endpoint --name="+name, " up ")
	}
	for _, name := range []string{"32.32.32.1_sctp_5001", "2001:db8:32::1_sctp_5001"} {
		r.EventuallyShows("get endpoint --name="+name, " down ", "refused the association (ABORT)")
	}
	for _, name := range []string{"17.17.17.1_sctp_5001", "2001:db8:17::1_sctp_5001"} {
		r.EventuallyShows("get endpoint --name="+name, " down ", "the host has no SCTP")
	}
	client := sctptest.Connect(t, r.Client)
	for i, s := range translations() {
		if name := client.Open(i, s.vip, 2020+i); name != "ep1" {
			t.Errorf("%+v: an association with %s", s, name)
		}
	}
	if n := server.Count("up"); n != len(translations()) {
		t.Errorf("the server has accepted %d associations, but probes must open none", n)
	}
}

// TestProbeDirect checks probes in mode dsr, in which the endpoint has the VIP.
func TestProbeDirect(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	for _, h := range r.Endpoints[:2] {
		if err := h.AddAddress("lo", rig.Prefix(rig.VIP4+"/32")); err != nil {
			t.Fatal(err)
		}
	}
	sctptest.Serve(t, r.Endpoints[0], port)
	r.Loxicmd("create lb %s --sctp=%d:%d --endpoints=31.31.31.1:1,32.32.32.1:1 --mode=dsr --monitor --probe-interval=200ms", rig.VIP4, port, port)
	r.EventuallyShows("get endpoint --name=31.31.31.1", " up ")
	r.EventuallyShows("get endpoint --name=32.32.32.1", " down ")
}

package traffic_test

import (
	"net/netip"
	"testing"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb/report"
	"loxilb/test/apitest"
)

// TestTranslationColumn checks that the translation of a connection is described as the existing
// loxilb does it: the new destination, and the new source if loxilb replaces the client's address.
func TestTranslationColumn(t *testing.T) {
	t.Parallel()
	at := netip.MustParseAddrPort
	client, vip, ours, endpoint := at("100.100.100.1:4000"), at("20.20.20.1:80"), at("31.31.31.254:4000"), at("31.31.31.1:8080")
	b := apitest.New(t, nil)
	for _, tc := range []struct {
		c    report.Connection
		want string
	}{
		{report.Connection{Src: client, Dst: vip, NewSrc: client, NewDst: endpoint, Endpoint: endpoint, Weight: 2}, "dnat-31.31.31.1:8080:w2"},
		{report.Connection{Reply: true, Src: endpoint, Dst: client, NewSrc: vip, NewDst: client, Endpoint: endpoint}, "snat-20.20.20.1:80:w0"},
		{report.Connection{Src: client, Dst: vip, NewSrc: ours, NewDst: endpoint, Endpoint: endpoint, Weight: 1}, "fdnat-31.31.31.254,31.31.31.1:8080:w1"},
		{report.Connection{Reply: true, Src: endpoint, Dst: ours, NewSrc: vip, NewDst: client, Endpoint: endpoint, Weight: 1}, "fsnat-20.20.20.1,100.100.100.1:80:w1"},
		{report.Connection{Direct: true, Endpoint: endpoint, Weight: 1}, "ddsr-31.31.31.1:8080:w1"},
	} {
		b.Fake.Conns = []report.Connection{tc.c}
		if got := apitest.GetAs[v1.ConntrackList](b, "/config/conntrack/all").CtAttr; len(got) != 1 || got[0].ConntrackAct != tc.want {
			t.Errorf("the translation of %+v is %+v, want %q", tc.c, got, tc.want)
		}
	}
}

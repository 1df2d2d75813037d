package traffic_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"loxilb/internal/api/httpapi"
	"loxilb/internal/lb/report"
	"loxilb/test/apitest"
)

// TestSought checks that the data path gets a filter for what it can leave out, which never
// excludes a requested connection: a service with several VIPs can match at any of them.
func TestSought(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	b.MustPost(strings.Replace(apitest.Demo, `"protocol"`, `"name":"web","protocol"`, 1))
	b.MustPost(strings.Replace(strings.Replace(apitest.Demo, "20.20.20.1", "20.20.20.2", 1), `"endpoints"`, `"secondaryIPs":[{"secondaryIP":"20.20.20.3"}],"endpoints"`, 1))
	vip, ports := netip.MustParseAddr("20.20.20.1"), [2]uint16{2020, 2020}
	for query, want := range map[string]report.ConnectionQuery{
		"":                             {},
		"limit=20":                     {},
		"selector=state=est":           {},
		"state=est":                    {State: "est"},
		"source=10.0.0.0/8":            {Client: netip.MustParsePrefix("10.0.0.0/8")},
		"vip=20.20.20.1":               {VIP: vip},
		"endpoint=31.31.31.1:5001":     {Endpoint: netip.MustParseAddr("31.31.31.1")},
		"service=20.20.20.1:2020/tcp":  {VIP: vip, Ports: ports},
		"service=20.20.20.2:2020/tcp":  {Ports: ports},
		"service=20.20.20.9:0/icmp":    {VIP: netip.MustParseAddr("20.20.20.9")},
		"service=0.0.0.0:80-90/tcp":    {Ports: [2]uint16{80, 90}},
		"sortBy=bytes&limit=3&vip=::1": {VIP: netip.MustParseAddr("::1")},
	} {
		if w := b.Call("GET", httpapi.BaseURL+"/config/conntrack/all?"+query, ""); w.Code != 200 {
			t.Errorf("%s: got %d %s, want code 200", query, w.Code, w.Body)
		}
		if diff := cmp.Diff(want, b.Fake.Query, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
			t.Errorf("%s: %s", query, diff)
		}
	}
	for _, query := range []string{"service=web", "servName=web&state=est"} {
		b.Call("GET", httpapi.BaseURL+"/config/conntrack/all?"+query, "")
		if of := b.Fake.Query.MatchEndpoint; of == nil || !of("web", netip.AddrPort{}) || of("other", netip.AddrPort{}) {
			t.Errorf("%s: endpoints of the service are not sought alone", query)
		}
	}
}

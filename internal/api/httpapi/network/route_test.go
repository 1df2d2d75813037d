package network_test

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/access"
	"loxilb/internal/api/httpapi/network"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/lb/netobj"
	"loxilb/test/apitest"
)

// TestRoutePages checks that pages of one route each show all routes once, in the kernel's order,
// also routes to one network that differ in TOS.
func TestRoutePages(t *testing.T) {
	t.Parallel()
	b := apitest.NewNet(t)
	to := netip.MustParsePrefix("10.1.0.0/16")
	at := func(metric int, via string) netobj.Route {
		return netobj.Route{Destination: to, Metric: metric, Gateway: netip.MustParseAddr(via)}
	}
	high, low, usual := at(200, "10.0.0.1"), at(100, "10.0.0.2"), at(0, "10.0.0.3")
	b.Routes.Objects = []netobj.Route{
		{Destination: netip.MustParsePrefix("10.0.0.0/24")}, high, low, usual, at(0, "10.0.0.4"),
		{Destination: netip.MustParsePrefix("2001:db8::/48")}, {Destination: netip.MustParsePrefix("2001:db8::/32")},
	}
	b.Routes.Tos = map[netobj.Route]uint8{high: 0x10, low: 8}
	var got []string
	next := ""
	for range 2 * len(b.Routes.Objects) {
		_, body, _ := strings.Cut(b.Answer("GET", "/config/route/all?limit=1&continue="+next, ""), " ")
		var page struct {
			RouteAttr []v1.RouteEntry `json:"routeAttr"`
			Continue  string          `json:"continue"`
		}
		if err := json.Unmarshal([]byte(body), &page); err != nil || len(page.RouteAttr) != 1 {
			t.Fatalf("%s: got %v, want no error, 1 element in page.RouteAttr", body, err)
		}
		got = append(got, page.RouteAttr[0].DestinationIPNet+" "+page.RouteAttr[0].Gateway)
		if next = page.Continue; next == "" {
			break
		}
	}
	want := []string{
		"10.0.0.0/24 ", "10.1.0.0/16 10.0.0.1", "10.1.0.0/16 10.0.0.2", "10.1.0.0/16 10.0.0.3", "10.1.0.0/16 10.0.0.4", "2001:db8::/48 ", "2001:db8::/32 ",
	}
	if strings.Join(got, ", ") != strings.Join(want, ", ") {
		t.Errorf("the listed routes are %q, want %q", got, want)
	}
}

// TestRouteReaders checks that the number of requests that read the kernel's routes is bounded,
// also per user.
func TestRouteReaders(t *testing.T) {
	t.Parallel()
	b := apitest.NewNet(t)
	for range network.RouteReads().All {
		_ = b.API.RouteReaders.Enter(&rest.Principal{Role: access.Admin})
	}
	if got := b.Answer("GET", "/config/route/all", ""); !strings.HasPrefix(got, "503 8 clients read routes already") {
		t.Errorf(`got %v, want got begins with "503 8 clients read routes already"`, got)
	}
	b.API.RouteReaders.Leave(&rest.Principal{Role: access.Admin})
	if got := b.Answer("GET", "/config/route/all", ""); !strings.HasPrefix(got, "200") || b.API.RouteReaders.Held() != network.RouteReads().All-1 {
		t.Errorf(`got %v, want got begins with "200", b.API.RouteReaders.Held() == network.RouteReads().All-1`, got)
	}
}

// BenchmarkLastRoutePage measures the last page of 100,000 routes.
func BenchmarkLastRoutePage(b *testing.B) {
	n := apitest.NewNet(b)
	for i := range 100_000 {
		n.Routes.Objects = append(n.Routes.Objects, netobj.Route{Destination: netip.PrefixFrom(netip.AddrFrom4([4]byte{100, byte(i >> 16), byte(i >> 8), byte(i)}), 32)})
	}
	_, body, _ := strings.Cut(n.Answer("GET", "/config/route/all?limit=99990", ""), " ")
	var page struct{ Continue string }
	if err := json.Unmarshal([]byte(body), &page); err != nil || page.Continue == "" {
		b.Fatalf("got %v, want no error, page.Continue not empty", err)
	}
	for b.Loop() {
		if got := n.Answer("GET", "/config/route/all?limit=99&continue="+page.Continue, ""); strings.Count(got, "destinationIPNet") != 10 {
			b.Fatalf(`got %v, want "destinationIPNet" 10 times in got`, got)
		}
	}
}

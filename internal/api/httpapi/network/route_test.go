package network_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/access"
	"loxilb/internal/api/httpapi/network"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/lb/netobj"
	"loxilb/test/apitest"
)

// TestRoutePages checks that pages neither repeat nor omit routes: each begins behind the last
// route of the page before in the kernel's order. Routes to one network differ in TOS, metric or
// gateway.
func TestRoutePages(t *testing.T) {
	t.Parallel()
	b := apitest.NewNet(t)
	b.Routes.Tos = map[netobj.Route]uint8{}
	want := []string{ // destination, gateway, metric
		"10.0.0.0/24 10.0.0.1 0", "10.0.0.0/16 10.0.0.1 0",
		"10.0.0.0/8 10.0.0.1 0", "10.0.0.0/8 10.0.0.2 0", "10.0.0.0/8 10.0.0.1 1", "10.0.0.0/8 10.0.0.2 1",
		"10.1.0.0/16 10.0.0.1 200", "10.1.0.0/16 10.0.0.2 100", "10.1.0.0/16 10.0.0.3 0", "10.1.0.0/16 10.0.0.4 0",
		"2001:db8::/64 fe80::1 0", "2001:db8:0:1::/64 fe80::1 0", "2001:db8::/48 fe80::1 0",
		"2001:db8::/32 fe80::1 1", "2001:db8::/32 fe80::1 2", "2001:db9::/64 fe80::1 0",
	}
	tos := map[string]uint8{want[2]: 4, want[6]: 0x10, want[7]: 8}
	for _, line := range want {
		var to, gateway string
		var r netobj.Route
		if _, err := fmt.Sscan(line, &to, &gateway, &r.Metric); err != nil {
			t.Fatal(err)
		}
		r.Destination, r.Gateway = netip.MustParsePrefix(to), netip.MustParseAddr(gateway)
		b.Routes.Objects, b.Routes.Tos[r] = append(b.Routes.Objects, r), tos[line]
	}
	page := func(query string) (got []string, next string) {
		t.Helper()
		_, body, _ := strings.Cut(b.Answer("GET", "/config/route/all?"+query, ""), " ")
		var page v1.RouteList
		if err := json.Unmarshal([]byte(body), &page); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		for _, r := range page.RouteAttr {
			got = append(got, fmt.Sprint(r.DestinationIPNet, " ", r.Gateway, " ", r.Metric))
		}
		return got, page.Continue
	}
	next := ""
	for i := range want {
		if later, _ := page("continue=" + next); !slices.Equal(later, want[i:]) {
			t.Errorf("after %d routes got %q, want %q", i, later, want[i:])
		}
		var one []string
		if one, next = page("limit=1&continue=" + next); len(one) != 1 || (next == "") != (i == len(want)-1) {
			t.Fatalf("a page of one route has %q, and the next begins at %q", one, next)
		}
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

package network_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	v1 "loxilb/api/v1"
	"loxilb/test/net/rig"
)

// TestRoutePages checks that the pages of the list of routes contain each route once and in order,
// also if prefixes contain each other, or the last route of a page was deleted.
func TestRoutePages(t *testing.T) {
	t.Parallel()
	r := rig.New(t, rig.Options{})
	for _, route := range []string{
		"10.0.0.0/8 via 31.31.31.1", "10.0.0.0/16 via 31.31.31.1", "10.0.0.0/24 via 31.31.31.1", "10.0.0.0/24 via 31.31.31.2 metric 7", "10.0.1.0/24 via 31.31.31.1",
		"10.1.0.0/16 nexthop via 31.31.31.1 nexthop via 32.32.32.1", "10.128.0.0/9 via 31.31.31.1", "11.0.0.0/8 via 31.31.31.1 tos 8", "11.0.0.0/8 via 31.31.31.2",
		"default via 31.31.31.1", "0.0.0.0/1 via 31.31.31.1", "172.16.0.0/12 via 31.31.31.1",
		"2001:db8:1000::/36 via 2001:db8:31::1", "2001:db8:1000::/48 via 2001:db8:31::1", "2001:db8:1000::/48 via 2001:db8:31::1 metric 7",
		"2001:db8:1000::/48 via 2001:db8:31::1 metric 2000", "2001:db8:1000:1::/64 via 2001:db8:31::1", "2001:db8:1fff::/48 via 2001:db8:31::1",
		"2001:db8:2000::/48 nexthop via 2001:db8:31::1 nexthop via 2001:db8:32::1", "default via 2001:db8:31::1",
	} {
		rig.MustRun(t, r.LB, append([]string{"ip", "route", "add"}, strings.Fields(route)...)...)
	}
	whole := routesOf(t, r, "").RouteAttr
	if len(whole) < 22 {
		t.Fatalf("%d routes", len(whole))
	}
	for limit := 1; limit < 9; limit++ {
		var pages []v1.RouteEntry
		for at := ""; ; {
			page := routesOf(t, r, fmt.Sprintf("?limit=%d&continue=%s", limit, url.QueryEscape(at)))
			if pages = append(pages, page.RouteAttr...); page.Continue == "" {
				break
			}
			if at = page.Continue; len(page.RouteAttr) != limit || len(pages) > len(whole) {
				t.Fatalf("a page of %d has %d routes", limit, len(page.RouteAttr))
			}
		}
		if !slices.Equal(pages, whole) {
			t.Errorf("pages of %d:\n%v\nwant\n%v", limit, pages, whole)
		}
	}
	for i := range whole {
		if whole[i].DestinationIPNet != "10.1.0.0/16" {
			continue
		}
		page := routesOf(t, r, fmt.Sprintf("?limit=%d", i+2)) // up to the second of two next hops
		rig.MustRun(t, r.LB, "ip", "route", "del", "10.1.0.0/16")
		rest := routesOf(t, r, "?continue="+url.QueryEscape(page.Continue)).RouteAttr
		if !slices.Equal(rest, whole[i+2:]) {
			t.Errorf("after a deleted route: %v, want %v", rest, whole[i+2:])
		}
		break
	}
	for query, want := range map[string]int{
		"?name=10.0.0.0/24": 2, "?name=10.0.0.0/24,172.16.0.0/12": 3, "?selector=metric=7": 2, "?selector=gateway=32.32.32.1": 0, "?selector=dev=ep2,protocol=3": 1,
	} {
		if list := routesOf(t, r, query).RouteAttr; len(list) != want {
			t.Errorf("%s: %v, want %d", query, list, want)
		}
	}
	out := r.Loxicmd("get route 10.0.0.0/24 --sort-by=metric --limit=1 -o json")
	if !strings.Contains(out, "31.31.31.1") || strings.Contains(out, "31.31.31.2") {
		t.Errorf("sorted and limited: %s", out)
	}
	if out, err := r.Command("get", "route", "--continue=rubbish"); err == nil {
		t.Errorf("a marker that no page has: got %s", out)
	}
}

// routesOf requests a list of routes.
func routesOf(t *testing.T, r *rig.Rig, query string) (list v1.RouteList) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:11111/netlox/v1/config/route/all"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := r.LB.HTTPClient(rig.Patience).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&list); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: got %s %v, want no error, code 200", query, res.Status, err)
	}
	return list
}

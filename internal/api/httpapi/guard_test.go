package httpapi_test

import (
	"strings"
	"testing"

	"loxilb/internal/api/httpapi"
	"loxilb/internal/api/httpapi/observation"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/api/httpapi/transport"
	"loxilb/test/apitest"
)

func TestGuard(t *testing.T) {
	t.Parallel()
	const token = "s3cret"
	for name, tc := range map[string]struct {
		token   string
		by      transport.Kind
		headers []string
		code    int
	}{
		"plain":                        {"", transport.ByLoopback, nil, 200},
		"json with charset":            {"", transport.ByLoopback, []string{"Content-Type", "application/json; charset=utf-8"}, 200},
		"form":                         {"", transport.ByLoopback, []string{"Content-Type", "text/plain"}, 415},
		"content type broken":          {"", transport.ByLoopback, []string{"Content-Type", "application/json; ="}, 415},
		"localhost":                    {"", transport.ByLoopback, []string{"Host", "localhost:11111"}, 200},
		"IPv6":                         {"", transport.ByLoopback, []string{"Host", "[::1]:11111"}, 200},
		"name that resolves to us":     {"", transport.ByLoopback, []string{"Host", "rebind.example:11111"}, 403},
		"upper case":                   {"", transport.ByLoopback, []string{"Host", "LOCALHOST"}, 200},
		"IPv6 without a port":          {"", transport.ByLoopback, []string{"Host", "[2001:DB8::1]"}, 200},
		"name that begins as ours":     {"", transport.ByLoopback, []string{"Host", "127.0.0.1.rebind.example"}, 403},
		"name that ends as ours":       {"", transport.ByLoopback, []string{"Host", "rebind.localhost.example"}, 403},
		"trailing dot":                 {"", transport.ByLoopback, []string{"Host", "rebind.example.:11111"}, 403},
		"top level, from the network":  {"", transport.ByNetwork, []string{"Host", "example."}, 403},
		"one label, on loopback":       {"", transport.ByLoopback, []string{"Host", "rebind"}, 403},
		"name, but a token is asked":   {token, transport.ByLoopback, []string{"Host", "lb.example", "Authorization", token}, 200},
		"name, from the network":       {"", transport.ByNetwork, []string{"Host", "rebind.example"}, 403},
		"given name, from network":     {"", transport.ByNetwork, []string{"Host", "LB.example:11111"}, 200},
		"given name, on loopback":      {"", transport.ByLoopback, []string{"Host", "lb.example"}, 200},
		"address, from the network":    {"", transport.ByNetwork, []string{"Host", "192.0.2.7:11111"}, 200},
		"one label, from the network":  {"", transport.ByNetwork, []string{"Host", "loxilb-lb-service:11111"}, 200},
		"name of a Kubernetes service": {"", transport.ByNetwork, []string{"Host", "lb.kube-system.svc"}, 200},
		"name, and a token is asked":   {token, transport.ByNetwork, []string{"Host", "rebind.example", "Authorization", token}, 200},
		"web page":                     {"", transport.ByLoopback, []string{"Sec-Fetch-Site", "cross-site"}, 403},
		"old web page":                 {"", transport.ByLoopback, []string{"Origin", "https://evil.example"}, 403},
		"no token":                     {token, transport.ByLoopback, nil, 401},
		"wrong token":                  {token, transport.ByNetwork, []string{"Authorization", "s3cres"}, 401},
		"longer token":                 {token, transport.ByNetwork, []string{"Authorization", token + "x"}, 401},
		"token":                        {token, transport.ByNetwork, []string{"Authorization", token}, 200},
		"bearer token":                 {token, transport.ByNetwork, []string{"Authorization", "Bearer " + token}, 200},
		"token over the socket":        {token, transport.BySocket, nil, 200},
		"any name over the socket":     {"", transport.BySocket, []string{"Host", "loxilb"}, 200},
		"other scheme, right secret":   {token, transport.ByNetwork, []string{"Authorization", "Basic " + token}, 401},
		"an empty token is no bypass":  {token, transport.ByNetwork, []string{"Authorization", "Bearer "}, 401},
	} {
		b := apitest.New(t, func(o *httpapi.Options) { o.Token, o.Hosts = tc.token, []string{"lb.example"} })
		b.Http = b.API.Handler(tc.by)
		w := b.Call("POST", httpapi.BaseURL+"/config/loadbalancer", apitest.Demo, tc.headers...)
		if w.Code != tc.code {
			t.Errorf("%s: %d %s, want %d", name, w.Code, w.Body, tc.code)
		}
		if closes, stranger := w.Header().Get("Connection") == "close", tc.code == 401 || tc.code == 403; closes != stranger {
			t.Errorf("%s: the connection is closed: %t", name, closes)
		}
		if w.Code != 200 {
			if e := apitest.ProblemOf(t, w); strings.Contains(e.Message, token) {
				t.Errorf("%s: the answer has the token: %s", name, e.Message)
			}
			if n := b.Store.Services.Len(b.Store.Snapshot()); n != 0 {
				t.Errorf("%s: refused, but %d services exist", name, n)
			}
		}
	}
}

// TestOtherSites checks that requests from pages of other sites are refused before they run, as
// some are expensive (trace, explain). Our own page, and addresses typed by users, are allowed.
func TestOtherSites(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	b.Http = b.API.Handler(transport.ByLoopback)
	for site, code := range map[string]int{"cross-site": 403, "same-site": 403, "same-origin": 200, "none": 200} {
		if w := b.Call("GET", httpapi.BaseURL+"/version", "", "Sec-Fetch-Site", site); w.Code != code {
			t.Errorf("%s: %d, want %d", site, w.Code, code)
		}
	}
	if w := b.Call("GET", observation.HealthPath, "", "Sec-Fetch-Site", "cross-site"); w.Code != 200 {
		t.Errorf("health: %d", w.Code)
	}
}

func TestTooLarge(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	w := b.Post(strings.Repeat(" ", rest.MaxBody+1))
	if e := apitest.ProblemOf(t, w); w.Code != 413 || !strings.Contains(e.Message, "64 MiB") {
		t.Errorf(`got %d %+v, want code 413, "64 MiB" in the message`, w.Code, e)
	}
}

func TestObserve(t *testing.T) {
	t.Parallel()
	var got []int
	b := apitest.New(t, func(o *httpapi.Options) { o.Observe = func(_ string, code int) { got = append(got, code) } })
	b.MustPost(apitest.Demo)
	b.Post(apitest.Demo)
	b.Call("GET", "/favicon.ico", "")
	if len(got) != 3 || got[0] != 200 || got[1] != 409 || got[2] != 404 {
		t.Errorf("observed %v", got)
	}
}

package httpapi_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"loxilb/internal/api/httpapi"
	"loxilb/test/apitest"
)

// FuzzPath checks that no path or query crashes the server, and that every refusal is JSON.
func FuzzPath(f *testing.F) {
	for _, p := range []string{
		"/config/loadbalancer/name/web",
		"/config/loadbalancer/externalipaddress/20.20.20.1/port/2020/protocol/tcp?bgp=true&block=1",
		"/config/loadbalancer/hosturl/any/externalipaddress/::1/port/0/portmax/9/protocol/6",
		"/config/conntrack/all?limit=9&vip=x%00&protocol=%",
		"/config/loadbalancer/name/%2e%2e/all",
	} {
		f.Add("DELETE", p)
		f.Add("GET", p)
	}
	b := apitest.New(f, nil)
	f.Fuzz(func(t *testing.T, method, path string) {
		r, err := http.NewRequest(method, "http://127.0.0.1"+httpapi.BaseURL+path, strings.NewReader(""))
		if err != nil || !strings.HasPrefix(r.URL.Path, httpapi.BaseURL) {
			return
		}
		w := httptest.NewRecorder()
		b.Http.ServeHTTP(w, r)
		if w.Code >= 400 && !json.Valid(w.Body.Bytes()) {
			t.Fatalf("got %s %s: %d %q, want code < 400 or valid JSON in the body", method, path, w.Code, w.Body)
		}
	})
}

// FuzzQuery checks that any query is answered, or refused with an error in JSON.
func FuzzQuery(f *testing.F) {
	f.Add("source=10.0.0.0%2F8&endpoint=%5B%3A%3A1%5D%3A80&service=10.0.0.1%3A80%2Ftcp&limit=1&offset=1", "1")
	f.Add("kind=link,object&object=x&limit=-1", "18446744073709551615")
	f.Add("name=web&failed=true&kind=service", "\"2\"")
	f.Fuzz(func(t *testing.T, query, header string) {
		values, _ := url.ParseQuery(query) // the valid part
		b := apitest.New(t, nil)
		b.Fake.Conns = apitest.Connections()
		b.MustPost(apitest.Demo)
		for _, path := range []string{"/config/conntrack/all", "/status/objects", "/events"} {
			w := b.Call("GET", httpapi.BaseURL+path+"?"+values.Encode(), "", "Last-Event-ID", header)
			if w.Code != 200 && w.Code != 400 || !json.Valid(w.Body.Bytes()) {
				t.Fatalf("got %s?%s: %d %s, want code 200 or code 400, valid JSON in the body",
					path, query, w.Code, w.Body)
			}
		}
		w := b.Call("DELETE", httpapi.BaseURL+"/config/loadbalancer/externalipaddress/20.20.20.1/port/2020/protocol/tcp", "", "If-Match", header)
		if w.Code != 200 && w.Code != 400 && w.Code != 412 {
			t.Fatalf("If-Match %q: %d %s", header, w.Code, w.Body)
		}
	})
}

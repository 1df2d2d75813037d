package traffic_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"loxilb/internal/api/access"
	"loxilb/internal/api/httpapi"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/api/httpapi/traffic"
	"loxilb/internal/api/httpapi/transport"
	"loxilb/test/apitest"
)

// walkPaths returns the requests that read the whole connection table.
func walkPaths() []string {
	return []string{httpapi.BaseURL + "/status/clients", httpapi.BaseURL + "/status/connections?sort=age"}
}

// TestSlowReadersHoldNoWalk checks that clients that do not read their responses do not block the
// connection table for others.
func TestSlowReadersHoldNoWalk(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	var read []func() *httptest.ResponseRecorder
	for i := range 2 * traffic.WholeWalks {
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:11111"+walkPaths()[i%2], nil)
		r = r.WithContext(transport.WithPeer(r.Context(), b.Peer))
		read = append(read, apitest.Unread(func(w http.ResponseWriter) { b.Http.ServeHTTP(w, r) }))
	}
	for _, path := range walkPaths() {
		if w := b.Call("GET", path, ""); w.Code != 200 {
			t.Errorf("%s: got %d %s, want code 200", path, w.Code, w.Body)
		}
	}
	for i, read := range read {
		if w := read(); w.Code != 200 {
			t.Errorf("%s: got %d %s, want code 200", walkPaths()[i%2], w.Code, w.Body)
		}
	}
}

// TestWalksAreBounded checks that a request that waits too long for its turn, or finds the queue
// full, is refused.
func TestWalksAreBounded(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	b.API.WalkWait = time.Millisecond
	refused := func() {
		t.Helper()
		for _, path := range walkPaths() {
			if w := b.Call("GET", path, ""); w.Code != 503 || w.Header().Get("Retry-After") == "" {
				t.Errorf(`%s: got %d %s, want code 503, a header Retry-After`,
					path, w.Code, w.Body)
			}
		}
	}
	for range traffic.WholeWalks {
		b.API.Walks <- struct{}{}
	}
	refused()
	if b.API.Walkers.Held() != 0 {
		t.Errorf("%d places are not given back", b.API.Walkers.Held())
	}
	for range traffic.WholeWalks {
		<-b.API.Walks
	}
	admin := &rest.Principal{Role: access.Admin}
	for range traffic.WholeWalkers().All {
		if p := b.API.Walkers.Enter(admin); p != nil {
			t.Fatal(p)
		}
	}
	refused()
	for range traffic.WholeWalkers().All {
		b.API.Walkers.Leave(admin)
	}
	b.API.WalkWait = traffic.WalkWait
	for _, path := range walkPaths() {
		if w := b.Call("GET", path, ""); w.Code != 200 {
			t.Errorf("%s: got %d %s, want code 200", path, w.Code, w.Body)
		}
	}
}

package httpapi_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/api/httpapi/transport"
	"loxilb/test/apitest"
)

// TestHalfClosed checks that a client that has closed its direction of the connection, like nc -N,
// gets the whole answer, and that a stream ends with it.
func TestHalfClosed(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	b.Fake.WatchBlocks = true
	closed, end := context.WithCancel(transport.WithPeer(t.Context(), b.Peer))
	end()
	call := func(method, path, body string, headers ...string) *httptest.ResponseRecorder {
		url := "http://127.0.0.1:11111" + rest.BaseURL + path
		r := httptest.NewRequest(method, url, strings.NewReader(body)).WithContext(closed)
		for i := 0; i+1 < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		b.Http.ServeHTTP(w, r)
		return w
	}
	if w := call("POST", "/config/loadbalancer", apitest.Demo); w.Code != 200 {
		t.Errorf("create: got %d %s, want code 200", w.Code, w.Body)
	}
	for path, want := range map[string]string{
		"/config/loadbalancer/all": `"externalIP":`,
		"/config/conntrack/all":    `{"ctAttr":[`,
		"/config/cistate/all":      `{"Attr":[`,
		"/config/firewall/all":     `{"fwAttr":[`,
	} {
		w := call("GET", path, "")
		body := strings.TrimSpace(w.Body.String())
		if w.Code != 200 || !strings.Contains(body, want) || !strings.HasSuffix(body, "]}") {
			t.Errorf("%s: got %d %s, want code 200 with the whole list", path, w.Code, w.Body)
		}
	}
	if w := call("GET", "/config/conntrack/events", "", "Accept", "text/event-stream"); w.Code != 200 {
		t.Errorf("a stream: got %d %s, want code 200", w.Code, w.Body)
	}
}

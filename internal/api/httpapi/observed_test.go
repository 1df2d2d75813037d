package httpapi_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"loxilb/internal/api/httpapi"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/api/httpapi/transport"
	"loxilb/test/apitest"
)

// TestUnread checks that a client that does not read its response is disconnected.
func TestUnread(t *testing.T) {
	t.Parallel()
	var answer atomic.Int64
	done := make(chan error, 1)
	b := apitest.New(t, func(o *httpapi.Options) {
		o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			n, err := w.Write(make([]byte, 64<<20)) // more than any socket buffer
			answer.Store(int64(n))
			done <- err
		})
	})
	b.API.Observation.Streams.Stall = 50 * time.Millisecond
	c, err := net.Dial("tcp", b.Serve().Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // of a test
	if _, err := fmt.Fprintf(c, "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d bytes were written: %v", answer.Load(), err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the handler waits for a client that does not read")
	}
}

// TestManyUnread checks that the number of large responses in memory is bounded although clients do
// not read them, and that small ones are not limited.
func TestManyUnread(t *testing.T) {
	t.Parallel()
	var size atomic.Int64
	b := apitest.New(t, func(o *httpapi.Options) {
		o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, size.Load())) })
	})
	wait := func() (read func() *httptest.ResponseRecorder) {
		r := httptest.NewRequest("GET", "http://127.0.0.1:11111/metrics", nil)
		r = r.WithContext(transport.WithPeer(r.Context(), b.Peer))
		return apitest.Unread(func(w http.ResponseWriter) { b.Http.ServeHTTP(w, r) })
	}
	ask := func(want int) {
		t.Helper()
		if w := b.Call("GET", "/metrics", ""); w.Code != want || want == 200 && int64(w.Body.Len()) != size.Load() {
			t.Errorf("%d bytes: %d, %d bytes", size.Load(), w.Code, w.Body.Len())
		}
	}
	size.Store(rest.LargeAnswer + 1)
	read := wait()
	for range rest.MaxUnread - 1 {
		defer wait()()
	}
	ask(503)
	size.Store(rest.LargeAnswer)
	ask(200)
	read()
	size.Store(3 * rest.LargeAnswer)
	ask(200)
	ask(200)
}

// TestCompleteListsBounded checks that the number of concurrent complete lists is bounded, and that
// further ones are refused before they use memory.
func TestCompleteListsBounded(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	for range rest.MaxCompleteLists {
		b.API.Objects.CompleteLists <- struct{}{}
	}
	for _, path := range []string{"/config/export", "/nodegraph/all"} {
		if w := b.Call("GET", httpapi.BaseURL+path, ""); w.Code != 503 {
			t.Errorf("%s: got %d, want 503", path, w.Code)
		}
	}
	<-b.API.Objects.CompleteLists
	for range 2 {
		if w := b.Call("GET", httpapi.BaseURL+"/config/export", ""); w.Code != 200 {
			t.Errorf("got %d %s, want code 200", w.Code, w.Body)
		}
	}
}

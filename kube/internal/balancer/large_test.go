package balancer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"testing"
)

// TestMemory checks that large requests and answers are not copied: each of hundreds of balancers
// has all services.
func TestMemory(t *testing.T) { //nolint:paralleltest // it counts what the process allocates
	const count, size = 200, 50 << 10
	endpoints := strings.Repeat(" ", size)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Method == http.MethodPost {
			if n, err := io.Copy(io.Discard, q.Body); err != nil || n != q.ContentLength || n < count*size {
				t.Errorf("a request of %d bytes, Content-Length %d: %v", n, q.ContentLength, err)
			}
			fmt.Fprint(w, `{"revision":7}`)
			return
		}
		for i := range count {
			fmt.Fprintf(w, `%s{"kind":"Loadbalancer","spec":{"serviceArguments":{"externalIP":"20.20.20.1","port":%d,"protocol":"tcp"},"endpoints":[%s]}}`,
				[]string{`{"objects":[`, ","}[min(i, 1)], i+1, endpoints)
		}
		fmt.Fprint(w, "]}\n")
	}))
	defer server.Close()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewClient(u, Access{})
	if err != nil {
		t.Fatal(err)
	}
	specs := make([]json.RawMessage, count)
	for i := range specs {
		specs[i] = json.RawMessage(`{"endpoints":[` + endpoints + `]}`)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if result, err := c.Apply(t.Context(), specs, false); err != nil || result.Revision != 7 {
		t.Errorf("got %+v: %v", result, err)
	}
	list, err := c.Services(t.Context())
	runtime.ReadMemStats(&after)
	if err != nil || len(list) != count || list[count-1].Port != count {
		t.Errorf("got %d services: %v", len(list), err)
	}
	if got, most := after.TotalAlloc-before.TotalAlloc, uint64(count*size/4); got > most {
		t.Errorf("a request and an answer of %d bytes each allocate %d bytes, want at most %d", count*size, got, most)
	}
}

// TestInvalidLists checks that an answer which is not a complete list of services is an error:
// otherwise all other services would be sent again.
func TestInvalidLists(t *testing.T) {
	t.Parallel()
	const service = `{"kind":"Loadbalancer","spec":{"serviceArguments":{"port":80}}}`
	for text, valid := range map[string]bool{
		"": false, "{}": false, "[]": false, `{"objects":null}`: false, `{"objects":{}}`: false, `{"items":[]}`: false,
		`{"objects":[`: false, `{"objects":[` + service: false, `{"objects":[` + service + `,`: false, `{"objects":[7]}`: false,
		`{"next":{"objects":[]}}`: false, `{"next":{"a":[1]},"objects":[` + service + `],"more":1}`: true,
		`{"objects":[]}`: true, `{"objects":[` + service + `]}`: true,
	} {
		if list, err := readServices(strings.NewReader(text)); (err == nil) != valid {
			t.Errorf("%s: %d services, error %v", text, len(list), err)
		}
	}
}

// TestMaxLists checks that the services of at most maxLists balancers are read at a time: after a
// start, hundreds at a time on a busy machine all took longer than a request may.
func TestMaxLists(t *testing.T) {
	t.Parallel()
	r := newRemote(t, nil, plain)
	f := newFleet(t, Options{}, Access{}, r)
	for range maxLists {
		f.listSlots <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	v := f.view("")
	if err := f.members[r.URL].list(ctx, &v); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v while %d others are read", err, maxLists)
	}
	<-f.listSlots
	if err := f.members[r.URL].list(t.Context(), &v); err != nil || len(f.listSlots) != maxLists-1 {
		t.Errorf("got %v, and %d are read", err, len(f.listSlots))
	}
}

package rest

import (
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
)

// TestLengthAllocatesNothing checks that a request's Content-Length allocates no memory before the
// body arrives.
func TestLengthAllocatesNothing(t *testing.T) {
	r := httptest.NewRequest("POST", "/", strings.NewReader("{}"))
	r.ContentLength = MaxBody
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, p := ReadBody(httptest.NewRecorder(), r, nil); p != nil {
		t.Fatal(p)
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
		t.Errorf("%d bytes for a body of 2", got)
	}
}

package traffic_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"loxilb/internal/api/httpapi"
	"loxilb/test/apitest"
)

// TestTraceTime checks that a trace lasts for its time from the beginning of the stream on, not
// from the request on: it may take seconds to load the programs.
func TestTraceTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := apitest.New(t, nil)
		b.Fake.TraceBegins = time.Minute
		start := time.Now()
		w := b.Call("GET", httpapi.BaseURL+"/status/trace?seconds=2", "")
		if took := time.Since(start); took != time.Minute+2*time.Second {
			t.Errorf("a trace of 2 s whose programs are loaded in a minute took %v", took)
		}
		if w.Code != 200 || !strings.Contains(w.Body.String(), "the time is over") {
			t.Errorf("got %d %s, want the end of the time", w.Code, w.Body)
		}
	})
}

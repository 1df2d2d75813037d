package services_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"loxilb/internal/api/httpapi"
	"loxilb/internal/lb"
	"loxilb/test/apitest"
)

// TestNodeDrain checks that a drain is stored, changes its deadline, shows in the node and in
// readiness, and ends.
func TestNodeDrain(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	call := func(method, path, body string) string {
		t.Helper()
		w := b.Call(method, httpapi.BaseURL+path, body)
		if w.Code != http.StatusOK {
			t.Fatalf("got %s %s: %d %s, want code 200", method, path, w.Code, w.Body)
		}
		return w.Body.String()
	}
	here := func() *lb.Maintenance { return b.Store.Maintenance.OfThisNode(b.Store.Snapshot()) }
	if w := b.Call("GET", "/readyz", ""); w.Code != http.StatusOK {
		t.Errorf("readyz: %d %s", w.Code, w.Body)
	}
	call("POST", "/config/node/drain", `{"within":60,"exit":true}`)
	first := here()
	if first.Stage() != lb.Draining || !first.Exit || first.Deadline.Sub(first.Since) != time.Minute {
		t.Errorf("got %+v, want first.Stage() == lb.Draining, first.Exit, first.Deadline.Sub(first.Since) == time.Minute",
			first)
	}
	if got := call("GET", "/status/node", ""); !strings.Contains(got, `"stage":"draining"`) {
		t.Errorf("got %v, want `\"stage\":\"draining\"` in got", got)
	}
	if w := b.Call("GET", "/readyz", ""); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "loxicmd node resume") {
		t.Errorf("readyz: %d %s", w.Code, w.Body)
	}
	call("POST", "/config/node/drain", `{}`)
	if again := here(); !again.Since.Equal(first.Since) || !again.Deadline.IsZero() {
		t.Errorf("the repeated drain gives %+v", again)
	}
	call("POST", "/config/node/resume", "")
	if here() != nil {
		t.Errorf("resumed: %+v", here())
	}
	if got := call("POST", "/config/node/resume", ""); !strings.Contains(got, "unchanged") {
		t.Errorf(`got %v, want "unchanged" in got`, got)
	}
	if w := b.Call("POST", httpapi.BaseURL+"/config/node/drain", `{"within":-1}`); w.Code != http.StatusBadRequest {
		t.Errorf("a negative time: %d %s", w.Code, w.Body)
	}
}

package objects_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"loxilb/internal/api/httpapi"
	"loxilb/internal/control/status"
	"loxilb/test/apitest"
)

var bad = strings.Replace(apitest.Demo, "2020", "666", 1)

// TestOwnObjects checks that a request reports failures of its own objects only.
func TestOwnObjects(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	b.Follow()
	w := b.Post(bad)
	if e := apitest.ProblemOf(t, w); w.Code != 503 ||
		!strings.Contains(e.Message, "stored as version 1, but the data path could not take it: service 20.20.20.1:666/tcp: "+apitest.ErrDataPath.Error()) ||
		!strings.Contains(e.Message, ": trying again in 4s") {
		t.Errorf("got %d %+v, want code 503, the data path's error and the time of the next attempt", w.Code, e)
	}
	b.MustPost(apitest.Demo)
	if w := b.Call("DELETE", httpapi.BaseURL+"/config/loadbalancer/externalipaddress/20.20.20.1/port/2020/protocol/tcp", ""); w.Code != 200 {
		t.Errorf("got %d %s, want code 200", w.Code, w.Body)
	}
	if w := b.Call("DELETE", httpapi.BaseURL+"/config/loadbalancer/externalipaddress/20.20.20.1/port/666/protocol/tcp", ""); w.Code != 200 {
		t.Errorf("what failed can't be deleted: %d %s", w.Code, w.Body)
	}
}

func TestStillAtWork(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, func(o *httpapi.Options) { o.ApplyWait = 20 * time.Millisecond })
	b.Fake.WaitsForTable = true
	w := b.Post(apitest.Demo)
	if e := apitest.ProblemOf(t, w); w.Code != 503 || e.Message != "stored as version 1, but not applied yet: the data path is still processing it" {
		t.Errorf(`got %d %+v, want code 503, message == "stored as version 1, `+
			`but not applied yet: the data path is still processing it"`,
			w.Code, e)
	}
}

func TestStatuses(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	b.Follow()
	b.Post(bad)
	b.MustPost(strings.Replace(apitest.Demo, `"protocol"`, `"name":"web","protocol"`, 1))
	b.Fake.Failed(status.ID{Kind: "interface", Key: "eth0"}, 0, errors.New("no such device"), time.Now().Add(time.Hour))
	for query, want := range map[string]string{
		"":                             "interface eth0 failed, service 20.20.20.1:2020/tcp applied, service 20.20.20.1:666/tcp failed",
		"?kind=service":                "service 20.20.20.1:2020/tcp applied, service 20.20.20.1:666/tcp failed",
		"?kind=service&failed=true":    "service 20.20.20.1:666/tcp failed",
		"?failed=true":                 "interface eth0 failed, service 20.20.20.1:666/tcp failed",
		"?name=web":                    "service 20.20.20.1:2020/tcp applied",
		"?name=eth0":                   "interface eth0 failed",
		"?name=20.20.20.1:666/tcp":     "service 20.20.20.1:666/tcp failed",
		"?name=other":                  "",
		"?kind=interface&failed=false": "interface eth0 failed",
	} {
		var got []string
		for _, s := range b.Statuses(query) {
			got = append(got, s.Kind+" "+s.Key+" "+s.State)
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%q: %v, want %s", query, got, want)
		}
	}
	for _, e := range b.List() {
		s := e.Status
		switch {
		case s == nil || s.Since.IsZero() || s.Desired == 0:
			t.Errorf("got %+v, want s != nil, s.Since set, s.Desired != 0", s)
		case s.State == "failed" && (s.Error != apitest.ErrDataPath.Error() || s.Applied != 0 || s.Attempts != 1 || s.NextTry.IsZero()):
			t.Errorf("got %+v, "+
				`want s.State != "failed" or (s.Error == the data path's error and s.Applied == 0 and s.Attempts == 1 and s.NextTry set)`,
				s)
		case s.State == "applied" && (s.Error != "" || s.Applied != s.Desired || s.Attempts != 0 || !s.NextTry.IsZero()):
			t.Errorf("got %+v, "+
				`want s.State != "applied" or (no s.Error and s.Applied == s.Desired and s.Attempts == 0 and s.NextTry zero)`,
				s)
		}
	}
	// The output of GET, including its status, can be sent back, and is no change.
	revision := b.Store.Snapshot().Revision()
	whole := b.Call("GET", httpapi.BaseURL+"/config/loadbalancer/all", "").Body.String()
	b.Post(whole)
	one, err := json.Marshal(b.List()[0])
	if err != nil {
		t.Fatal(err)
	}
	if w := b.Post(string(one)); w.Code != 409 {
		t.Errorf("got %d %s, want code 409", w.Code, w.Body)
	}
	if r := b.Store.Snapshot().Revision(); r != revision {
		t.Errorf("the same again made revision %d of %d", r, revision)
	}
}

// TestUnknownParameters checks that lists that the existing loxilb lacks refuse unknown parameters.
func TestUnknownParameters(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	for path, want := range map[string]string{
		"/status/objects?state=failed": `parameter "state" is not known (allowed: kind, name, failed, selector, sortBy, limit, continue)`,
		"/config/revisions?limit=-1":   `parameter "limit" is not known (allowed: no parameters)`,
	} {
		w := b.Call("GET", httpapi.BaseURL+path, "")
		if e := apitest.ProblemOf(t, w); w.Code != 400 || e.Message != want {
			t.Errorf("GET %s: %d %q, want 400 %q", path, w.Code, e.Message, want)
		}
	}
}

// TestPostKeepsBFD checks that POST keeps numbers of a BFD session that the body lacks.
func TestPostKeepsBFD(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	for _, body := range []string{
		`{"remoteIp":"10.0.0.2","interval":300000,"retryCount":5,"priority":7}`,
		`{"remoteIp":"10.0.0.2","interval":0,"preempt":true}`,
	} {
		if w := b.Call("POST", httpapi.BaseURL+"/config/bfd", body); w.Code != 200 {
			t.Fatalf("POST %s: %d %s, want 200", body, w.Code, w.Body)
		}
	}
	got := b.Call("GET", httpapi.BaseURL+"/config/bfd/all", "").Body.String()
	for _, want := range []string{`"interval":300000`, `"retryCount":5`, `"priority":7`, `"preempt":true`} {
		if !strings.Contains(got, want) {
			t.Errorf("GET config/bfd/all: %s, want %s", got, want)
		}
	}
}

// TestPrecondition checks that a change can be made conditional on the version that its author saw.
func TestPrecondition(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	post := func(body string, headers ...string) (int, string) {
		w := b.Call("POST", httpapi.BaseURL+"/config/loadbalancer", body, headers...)
		return w.Code, w.Body.String()
	}
	heavier := strings.Replace(apitest.Demo, `"weight":1}`, `"weight":2}`, 1)
	heaviest := strings.Replace(apitest.Demo, `"weight":1}`, `"weight":3}`, 1)
	const path = httpapi.BaseURL + "/config/loadbalancer/externalipaddress/20.20.20.1/port/2020/protocol/tcp"
	want := func(step string, code, wantCode int, body string, words ...string) {
		t.Helper()
		for _, word := range words {
			if !strings.Contains(body, word) {
				t.Errorf("%s: %s does not have %q", step, body, word)
			}
		}
		if code != wantCode {
			t.Errorf("%s: got %d %s, want code %d", step, code, body, wantCode)
		}
	}
	code, body := post(apitest.Demo, "If-Match", "*")
	want("nothing there", code, 412, body, "does not exist")
	code, body = post(apitest.Demo, "If-None-Match", "*")
	want("created", code, 200, body)
	code, body = post(heavier, "If-None-Match", "*")
	want("there already", code, 412, body, "in version 1")
	w := b.Call("POST", httpapi.BaseURL+"/config/loadbalancer", heavier, "If-Match", `"1"`)
	want("changed", w.Code, 200, w.Body.String())
	if etag := w.Header().Get("ETag"); etag != `"2"` {
		t.Errorf("ETag %q", etag)
	}
	code, body = post(heaviest, "If-Match", `"1"`)
	want("changed meanwhile", code, 412, body, "version 2", "version 1")
	w = b.Call("DELETE", path, "", "If-Match", `"1"`)
	want("delete of an old version", w.Code, 412, w.Body.String(), "version 2", "version 1")
	// only If-None-Match can require that the object does not exist: version 0 is invalid
	absent := strings.Replace(apitest.Demo, "20.20.20.1", "20.20.20.2", 1)
	for _, c := range []struct{ body, header, value string }{
		{heaviest, "If-Match", `"1", "2"`},
		{heaviest, "If-None-Match", `"1"`},
		{absent, "If-Match", `"0"`},
		{absent, "If-Match", "0"},
	} {
		code, body = post(c.body, c.header, c.value)
		want("form "+c.value, code, 400, body, c.header)
	}
	code, body = post(heaviest, "If-Match", "*", "If-None-Match", "*")
	want("both", code, 400, body)
	code, body = post(`{"lbAttr":[`+heaviest+`]}`, "If-Match", "2")
	want("a list", code, 400, body, "about one object")
	w = b.Call("DELETE", httpapi.BaseURL+"/config/loadbalancer/all", "", "If-Match", "2")
	want("all", w.Code, 400, w.Body.String())
	if r := b.Store.Snapshot().Revision(); r != 2 {
		t.Errorf("a refused change made revision %d", r)
	}
	w = b.Call("DELETE", path, "", "If-Match", "2")
	want("delete", w.Code, 200, w.Body.String())
}

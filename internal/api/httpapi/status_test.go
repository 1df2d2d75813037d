package httpapi

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/control/status"
)

// follow does what a reconciler does, until the test ends: services of TCP port 666 fail.
func (b *bench) follow() {
	b.fake.wait = true
	table, done := b.fake.Table, make(chan struct{})
	b.t.Cleanup(func() { close(done) })
	go func() {
		var seen uint64
		for {
			changed := b.store.Changed()
			now, ids, _ := b.store.Since(seen)
			for _, id := range ids {
				sid, version := status.ID(id), uint64(0)
				if meta, ok := now.Meta(id); ok {
					version = meta.Version
				}
				table.Want(sid, version)
				switch {
				case version == 0:
					table.Forget(sid)
				case strings.HasSuffix(id.Key, ":666/tcp"):
					table.Failed(sid, version, errDataPath, time.Now().Add(4*time.Second))
				default:
					table.Succeeded(sid, version)
				}
			}
			seen = now.Revision()
			table.Seen("service", seen)
			select {
			case <-changed:
			case <-done:
				return
			}
		}
	}()
}

var bad = strings.Replace(demo, "2020", "666", 1)

// A request answers for its own objects: another one that failed does not concern it.
func TestOwnObjects(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.follow()
	w := b.post(bad)
	if e := problemOf(t, w); w.Code != 503 || !strings.Contains(e.Message, "stored as version 1, but the data path could not take it: service 20.20.20.1:666/tcp: "+errDataPath.Error()) ||
		!strings.Contains(e.Message, ": trying again in 4s") {
		t.Errorf("%d %+v", w.Code, e)
	}
	b.mustPost(demo)
	if w := b.call("DELETE", BaseURL+"/config/loadbalancer/externalipaddress/20.20.20.1/port/2020/protocol/tcp", ""); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := b.call("DELETE", BaseURL+"/config/loadbalancer/externalipaddress/20.20.20.1/port/666/protocol/tcp", ""); w.Code != 200 {
		t.Errorf("what failed can't be deleted: %d %s", w.Code, w.Body)
	}
}

func TestStillAtWork(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(o *Options) { o.ApplyWait = 20 * time.Millisecond })
	b.fake.wait = true
	w := b.post(demo)
	if e := problemOf(t, w); w.Code != 503 || e.Message != "stored as version 1, but the data path does not have it yet: it is still at work on it" {
		t.Errorf("%d %+v", w.Code, e)
	}
}

func (b *bench) statuses(query string) []v1.Status {
	b.t.Helper()
	w := b.call("GET", BaseURL+"/status/objects"+query, "")
	var list v1.StatusList
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || w.Code != 200 {
		b.t.Fatalf("GET: %d %v %s", w.Code, err, w.Body)
	}
	return list.StatusAttr
}

func TestStatuses(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.follow()
	b.post(bad)
	b.mustPost(strings.Replace(demo, `"protocol"`, `"name":"web","protocol"`, 1))
	b.fake.Failed(status.ID{Kind: "interface", Key: "eth0"}, 0, errors.New("no such device"), time.Now().Add(time.Hour))
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
		for _, s := range b.statuses(query) {
			got = append(got, s.Kind+" "+s.Key+" "+s.State)
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%q: %v, want %s", query, got, want)
		}
	}
	for _, e := range b.list() {
		s := e.Status
		switch {
		case s == nil || s.Since.IsZero() || s.Desired == 0:
			t.Errorf("%+v", s)
		case s.State == "failed" && (s.Error != errDataPath.Error() || s.Applied != 0 || s.Attempts != 1 || s.NextTry.IsZero()):
			t.Errorf("%+v", s)
		case s.State == "applied" && (s.Error != "" || s.Applied != s.Desired || s.Attempts != 0 || !s.NextTry.IsZero()):
			t.Errorf("%+v", s)
		}
	}
	// What GET answers can be sent back, status and all, and is no change.
	revision := b.store.Snapshot().Revision()
	whole := b.call("GET", BaseURL+"/config/loadbalancer/all", "").Body.String()
	b.post(whole)
	one, err := json.Marshal(b.list()[0])
	if err != nil {
		t.Fatal(err)
	}
	if w := b.post(string(one)); w.Code != 409 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if r := b.store.Snapshot().Revision(); r != revision {
		t.Errorf("the same again made revision %d of %d", r, revision)
	}
}

// A change can be bound to the version that its author saw.
func TestPrecondition(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	post := func(body string, headers ...string) (int, string) {
		w := b.call("POST", BaseURL+"/config/loadbalancer", body, headers...)
		return w.Code, w.Body.String()
	}
	heavier := strings.Replace(demo, `"weight":1}`, `"weight":2}`, 1)
	heaviest := strings.Replace(demo, `"weight":1}`, `"weight":3}`, 1)
	const path = BaseURL + "/config/loadbalancer/externalipaddress/20.20.20.1/port/2020/protocol/tcp"
	want := func(step string, code, wantCode int, body string, words ...string) {
		t.Helper()
		for _, word := range words {
			if !strings.Contains(body, word) {
				t.Errorf("%s: %s does not have %q", step, body, word)
			}
		}
		if code != wantCode {
			t.Errorf("%s: %d %s", step, code, body)
		}
	}
	code, body := post(demo, "If-Match", "*")
	want("nothing there", code, 412, body, "does not exist")
	code, body = post(demo, "If-None-Match", "*")
	want("created", code, 200, body)
	code, body = post(heavier, "If-None-Match", "*")
	want("there already", code, 412, body, "of version 1")
	w := b.call("POST", BaseURL+"/config/loadbalancer", heavier, "If-Match", `"1"`)
	want("changed", w.Code, 200, w.Body.String())
	if etag := w.Header().Get("ETag"); etag != `"2"` {
		t.Errorf("ETag %q", etag)
	}
	code, body = post(heaviest, "If-Match", `"1"`)
	want("changed meanwhile", code, 412, body, "version 2", "version 1")
	w = b.call("DELETE", path, "", "If-Match", `"1"`)
	want("delete of an old version", w.Code, 412, w.Body.String(), "version 2", "version 1")
	// a version 0 would mean that the object must not exist: that is If-None-Match alone
	absent := strings.Replace(demo, "20.20.20.1", "20.20.20.2", 1)
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
	w = b.call("DELETE", BaseURL+"/config/loadbalancer/all", "", "If-Match", "2")
	want("all", w.Code, 400, w.Body.String())
	if r := b.store.Snapshot().Revision(); r != 2 {
		t.Errorf("what was refused made revision %d", r)
	}
	w = b.call("DELETE", path, "", "If-Match", "2")
	want("delete", w.Code, 200, w.Body.String())
}

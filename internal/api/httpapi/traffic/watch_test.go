package traffic_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"loxilb/internal/api/access"
	"loxilb/internal/api/httpapi"
	"loxilb/internal/api/httpapi/traffic"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
	"loxilb/test/apitest"
	"loxilb/test/netnstest/labtest"
)

// TestWatchConntracks checks that the stream has the connections that match the filters, and
// reports lost ones.
func TestWatchConntracks(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	at := netip.MustParseAddrPort
	event := func(act, client, reason, by string) report.ConnectionEvent {
		return report.ConnectionEvent{
			Time: time.Date(2020, 1, 2, 3, 4, 5, 6, time.UTC), Act: act, Protocol: lb.TCP, Client: at(client), VIP: at("20.20.20.1:80"), Source: at(client),
			Endpoint: at("31.31.31.1:8080"), Service: "web", Reason: reason, By: by, In: report.Traffic{Packets: 5, Bytes: 500}, Out: report.Traffic{Packets: 4, Bytes: 400}, OneOf: 1,
		}
	}
	b.Fake.Events = []report.ConnectionEvent{event("opened", "10.0.0.1:1000", "", ""), event("opened", "10.0.1.1:1000", "", ""), event("ended", "10.0.0.1:1000", "closed", "both")}
	b.Fake.Events[2].OneOf = 16
	b.Fake.Omitted = report.Omitted{Sampled: 3, Lost: 2}
	w := b.Call("GET", httpapi.BaseURL+"/config/conntrack/events?source=10.0.0.0/24", "")
	const want = `event: connection
data: {"act":"opened","client":"10.0.0.1:1000","endpoint":"31.31.31.1:8080","protocol":"tcp","servName":"web","source":"10.0.0.1:1000","time":"2020-01-02T03:04:05.000000006Z","vip":"20.20.20.1:80"}

event: connection
data: {"act":"ended","bytesIn":500,"bytesOut":400,"client":"10.0.0.1:1000","closedBy":"both","endpoint":"31.31.31.1:8080","oneOf":16,"packetsIn":5,"packetsOut":4,"protocol":"tcp","reason":"closed","servName":"web","source":"10.0.0.1:1000","time":"2020-01-02T03:04:05.000000006Z","vip":"20.20.20.1:80"}

event: untold
data: {"sampled":3,"lost":2}

`
	if w.Code != 200 || w.Header().Get("Content-Type") != "text/event-stream" || w.Body.String() != want {
		t.Errorf("got %d, type %v and body %s, want code 200 and a stream of events", w.Code, w.Header(), w.Body)
	}
	if b.Fake.WatchRate != traffic.WatchRate {
		t.Errorf("the data path was asked for %d events a second", b.Fake.WatchRate)
	}
	for query, field := range map[string]string{"?rate=0": "rate", "?rate=1000001": "rate", "?source=x": "source", "?protocol=x": "protocol"} {
		w := b.Call("GET", httpapi.BaseURL+"/config/conntrack/events"+query, "")
		if e := apitest.ProblemOf(t, w); w.Code != 400 || e.Field != field {
			t.Errorf("%q: got %d %+v, want code 400 about %s", query, w.Code, e, field)
		}
	}
	b.Fake.WatchErr = errors.New("as many watch already as can")
	w = b.Call("GET", httpapi.BaseURL+"/config/conntrack/events?rate=7", "")
	if w.Code != 503 || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "as many watch already as can") || b.Fake.WatchRate != 7 {
		t.Errorf(`got %d %v %s, want code 503, a header Retry-After, `+
			`"as many watch already as can" in the body, b.Fake.WatchRate == 7`,
			w.Code, w.Header(), w.Body)
	}
}

// TestWatchersAreShared checks that a viewer cannot take all places of watchers, or reserve much
// memory: another viewer and an administrator can still watch.
func TestWatchersAreShared(t *testing.T) {
	t.Parallel()
	b, tokens := apitest.Secured(t)
	b.Fake.WatchBlocks = true
	if _, err := b.API.Access.Add(t.Context(), "second", apitest.Passphrase, access.View); err != nil {
		t.Fatal(err)
	}
	tokens["second"] = b.Login("second", apitest.Passphrase)
	const path = "/config/conntrack/events"
	if w := b.Json(tokens["view"], "GET", path+"?rate=1000000", ""); w.Code != 403 || apitest.ProblemOf(t, w).Field != "rate" {
		t.Errorf("a viewer at a high rate: %d %s", w.Code, w.Body)
	}
	begin := func(user string) {
		t.Helper()
		before := b.API.Watchers.Held()
		go b.Json(tokens[user], "GET", path, "")
		labtest.Eventually(t, 10*time.Second, func(context.Context) error {
			if b.API.Watchers.Held() == before {
				return errors.New(user + " does not watch yet")
			}
			return nil
		})
	}
	t.Cleanup(b.API.Observation.Streams.Close)
	refused := func(user string) {
		t.Helper()
		if w := b.Json(tokens[user], "GET", path, ""); w.Code != 503 || w.Header().Get("Retry-After") == "" {
			t.Errorf("one more of %s: %d %s", user, w.Code, w.Body)
		}
	}
	begin("view")
	refused("view")
	begin("second")
	refused("operate")
	begin("admin")
	refused("admin")
	if n := bpf.TcRing(b.API.Watchers.Held()); n != bpf.TcRingMAX_WATCHERS-1 {
		t.Errorf("%d clients watch, and one place is the flow log's", n)
	}
}

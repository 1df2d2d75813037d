package services_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/api/httpapi"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
	"loxilb/test/apitest"
)

const (
	endpointPath  = httpapi.BaseURL + "/config/endpoint"
	endpointsPath = httpapi.BaseURL + "/config/endpoint/all"
	statePath     = httpapi.BaseURL + "/config/endpointhoststate"
)

// TestCreateEndpoint checks that requests of the contract's clients are accepted, and stored with
// their meaning.
func TestCreateEndpoint(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ body, want string }{
		{ // the existing loxicmd sends all properties
			`{"hostName":"31.31.31.1","name":"31.31.31.1_tcp_8080","inactiveReTries":2,"probeType":"ping","probeReq":"","probeResp":"","probeDuration":60,"probePort":0}`,
			`{"host":"31.31.31.1","name":"31.31.31.1_tcp_8080","probeType":"ping","probeInterval":"1m0s","probeRetries":2}`,
		},
		{`{"hostName":"31.31.31.1"}`, `{"host":"31.31.31.1","probeType":"ping"}`},
		{
			`{"hostName":"2001:db8::1","probeType":"http","probePort":80,"probeReq":"health","probeResp":"ok"}`,
			`{"host":"2001:db8::1","probeType":"http","probePort":80,"probeRequest":"health","probeResponse":"ok"}`,
		},
		{ // the output of GET
			`{"hostName":"31.31.31.1","name":"31.31.31.1_tcp_80","inactiveReTries":3,"probeType":"tcp","probePort":80,"probeDuration":1,"probeInterval":"500ms","probeRise":2,
			  "minDelay":"1ms","avgDelay":"1ms","maxDelay":"1ms","currState":"ok","since":"2026-01-01T00:00:00Z","checked":"2026-01-01T00:00:00Z","evidence":"x","object":true,"services":["a"],
			  "history":[{"time":"2026-01-01T00:00:00Z","from":"unknown","to":"ok","evidence":"x"}]}`,
			`{"host":"31.31.31.1","probeType":"tcp","probePort":80,"probeInterval":"500ms","probeRetries":3,"probeRise":2}`,
		},
	} {
		b := apitest.New(t, nil)
		if w := b.Call("POST", endpointPath, tc.body, "Content-Type", "application/json"); w.Code != 200 {
			t.Fatalf("%s: got %d %s, want code 200", tc.body, w.Code, w.Body)
		}
		if diff := cmp.Diff([]string{tc.want}, b.Stored()); diff != "" {
			t.Errorf("stored endpoints differ (-want +got):\n%s", diff)
		}
		if w := b.Call("POST", endpointPath, tc.body, "Content-Type", "application/json"); w.Code != 409 ||
			!strings.Contains(apitest.ProblemOf(t, w).Message, "exists already with the same content") {
			t.Errorf("the repeated request is answered %d %s", w.Code, w.Body)
		}
	}
}

// TestEndpointRefused checks that each bad value is refused with one sentence that names its
// property, and changes nothing.
func TestEndpointRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ body, field, want string }{
		{`{"hostName":"31.31.31.1","probeType":"telnet"}`, "probeType", `"telnet" is not known (allowed: auto, tcp,`},
		{`{"hostName":"31.31.31.1","probeType":"sctp"}`, "probePort", `"0" is zero, and probe type sctp needs one (allowed: 1 to 65535)`},
		{`{"hostName":"31.31.31.1","probeType":"tcp"}`, "probePort", `"0" is zero, and probe type tcp needs one (allowed: 1 to 65535)`},
		{`{"hostName":"31.31.31.1","probeType":"ping","probePort":80}`, "probePort", `"80" is set, but probe type ping has no port (allowed: 0)`},
		{`{"hostName":"31.31.31.1","probePort":80}`, "probePort", `"80" is set, but probe type ping has no port (allowed: 0)`},
		{`{"hostName":"31.31.31.1","probeType":"tcp","probePort":-1}`, "probePort", `"-1" is out of range`},
		{`{"hostName":"31.31.31.1","probeType":"tcp","probePort":65536}`, "probePort", `"65536" is out of range`},
		{`{"hostName":"31.31.31.1","inactiveReTries":1000000000}`, "inactiveReTries", `"1000000000" is out of range (allowed: 0 (the default) to 100)`},
		{`{"hostName":"31.31.31.1","inactiveReTries":-1}`, "inactiveReTries", `"-1" is out of range`},
		{`{"hostName":"31.31.31.1","probeDuration":-1}`, "probeDuration", `"-1" is out of range (allowed: 0 (the default) to 86400 seconds)`},
		{`{"hostName":"31.31.31.1","probeDuration":9223372036854775807}`, "probeDuration", `is out of range`},
		{`{"hostName":"31.31.31.1","probeInterval":"1ms"}`, "probeInterval", `"1ms" is out of range`},
		{`{"hostName":"31.31.31.1","probeType":"tcp","probePort":80,"probeReq":"` + strings.Repeat("x", 3<<20) + `"}`, "probeReq", `is too long`},
		{`{"hostName":"31.31.31.1","probeType":"http","probePort":80,"probeReq":"a b"}`, "probeReq", `"a b" is not the path of a URL`},
		{`{"hostName":"31.31.31.1","probeType":"http","probePort":80,"probeStatuses":["1"]}`, "probeStatuses", `"1" is neither a status`},
		{`{"hostName":"31.31.31.1","name":"a/b"}`, "name", `"a/b" has a slash`},
		{`{"hostName":"31.31.31.1","name":"` + strings.Repeat("x", 385) + `"}`, "name", `is too long`},
		{`{"hostName":"fe80::1%eth0"}`, "hostName", `"fe80::1%eth0" has a zone`},
		{`{"hostName":"a.example"}`, "hostName", `"a.example" is not an IP address`},
		{`{"hostName":"127.0.0.1"}`, "hostName", `"127.0.0.1" is a loopback address`},
		{`{}`, "hostName", `hostName is missing (allowed`},
		{`{"hostName":"31.31.31.1","novelty":1}`, "novelty", `unknown property "novelty"`},
		{`{"hostName":7}`, "hostName", `is of the wrong type`},
		{`[]`, "body", `is of the wrong type`},
		{``, "", `the body is empty`},
	} {
		b := apitest.New(t, nil)
		w := b.Call("POST", endpointPath, tc.body, "Content-Type", "application/json")
		e := apitest.ProblemOf(t, w)
		code := 400
		if strings.Contains(tc.want, "not part of this build") {
			code = 501
		}
		if w.Code != code || e.Field != tc.field || !strings.Contains(e.Message, tc.want) || strings.Count(e.Message, "\n") > 0 || len(e.Message) > 400 {
			t.Errorf("%.80s: %d %q %s\nwant %q %s", tc.body, w.Code, e.Field, e.Message, tc.field, tc.want)
		}
		if b.Store.Snapshot().Revision() != 0 {
			t.Errorf("%.80s: something was changed", tc.body)
		}
	}
}

func TestDeleteEndpoint(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	for _, body := range []string{
		`{"hostName":"31.31.31.1"}`, `{"hostName":"31.31.31.1","probeType":"tcp","probePort":80}`, `{"hostName":"31.31.31.1","name":"mine","probeType":"tcp","probePort":81}`,
	} {
		if w := b.Call("POST", endpointPath, body, "Content-Type", "application/json"); w.Code != 200 {
			t.Fatalf("%s: got %d %s, want code 200", body, w.Code, w.Body)
		}
	}
	remove := endpointPath + "/epipaddress/"
	for _, tc := range []struct {
		path string
		code int
		want string // in the message, or the warning
	}{
		{"31.31.31.1?probe_type=tcp&probe_port=81", 200, "endpoint 31.31.31.1_tcp_81 does not exist"},
		{"31.31.31.2?name=mine", 404, `ip_address "31.31.31.2" is not the address of endpoint mine (allowed: 31.31.31.1)`},
		{"31.31.31.1?name=other", 200, "endpoint other does not exist"},
		{"31.31.31.1?probe_type=telnet", 400, `probe_type "telnet" is not known`},
		{"31.31.31.1?probe_type=tcp&probe_port=x", 400, `probe_port "x" is not a plain number`},
		{"31.31.31.1?name=a%2Fb", 400, `name "a/b" has a slash`},
		{"fe80::1%25eth0", 400, `ip_address "fe80::1%eth0" has a zone`},
		{"mine", 400, `ip_address "mine" is not an IP address`},
		{"31.31.31.1?name=mine&probe_type=ping&probe_port=0", 200, ""}, // the existing loxicmd sends all
		{"31.31.31.1?probe_type=tcp&probe_port=80", 200, ""},
		{"31.31.31.1", 200, ""},
		{"31.31.31.1", 200, "endpoint 31.31.31.1_ping_0 does not exist"},
	} {
		w := b.Call("DELETE", remove+tc.path, "")
		said := w.Header().Get("Warning")
		if w.Code != 200 {
			said = apitest.ProblemOf(t, w).Message
		}
		if w.Code != tc.code || !strings.Contains(said, tc.want) || tc.want == "" && said != "" {
			t.Errorf("%s: %d %s, %s\nwant %d %s", tc.path, w.Code, w.Body, said, tc.code, tc.want)
		}
	}
	if left := b.Stored(); len(left) != 0 {
		t.Errorf("the remaining endpoints are %q", left)
	}
}

// health returns the health of an endpoint in the fake.
func health(state report.HealthState, addr string) *report.EndpointHealth {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	h := &report.EndpointHealth{
		State: state, Since: at, Checked: at.Add(time.Second), Evidence: "tcp " + addr + ":5001: connection refused, 3 of 3",
		MinDelay: 1200 * time.Microsecond, AvgDelay: 1300 * time.Microsecond, MaxDelay: 1234567 * time.Nanosecond,
		History: []report.HealthChange{{At: at, From: report.HealthUp, To: report.HealthDown, Evidence: "x"}}, Services: []lb.Key{apitest.DemoKey()},
	}
	h.Addr = netip.MustParseAddr(addr)
	h.Probe = lb.Probe{Type: lb.ProbeTCP, Port: 5001, Interval: 500 * time.Millisecond, Timeout: 500 * time.Millisecond, Fall: 3, Rise: 2}
	return h
}

// TestGetEndpoints checks that responses use the contract's words, and can be sent back.
func TestGetEndpoints(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	red := health(report.HealthDown, "17.17.17.1")
	red.AgentDown = true
	b.Fake.Health = []*report.EndpointHealth{health(report.HealthDown, "31.31.31.1"), health(report.HealthUp, "32.32.32.1"), health(report.HealthUnknown, "33.33.33.1"), red}
	w := b.Call("GET", endpointsPath, "")
	var list struct{ Attr []json.RawMessage }
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || len(list.Attr) != 4 {
		t.Fatalf("got %v %s, want no error, 4 elements in list.Attr", err, w.Body)
	}
	const want = `{"avgDelay":"1.3ms","checked":"2026-01-02T03:04:06Z","currState":"nok","evidence":"tcp 31.31.31.1:5001: connection refused, 3 of 3",` +
		`"history":[{"evidence":"x","from":"up","time":"2026-01-02T03:04:05Z","to":"down"}],"hostName":"31.31.31.1","inactiveReTries":3,"maxDelay":"1.235ms","minDelay":"1.2ms",` +
		`"name":"31.31.31.1_tcp_5001","observedState":"down","probeDuration":1,"probeInterval":"500ms","probePort":5001,"probeReq":"","probeResp":"",` +
		`"probeRise":2,"probeType":"tcp","probeWait":"500ms",` +
		`"services":["20.20.20.1:2020/tcp"],"since":"2026-01-02T03:04:05Z"}`
	var sorted any
	if err := json.Unmarshal(list.Attr[0], &sorted); err != nil {
		t.Fatal(err)
	}
	if got, err := json.Marshal(sorted); err != nil || string(got) != want {
		t.Errorf("got error %v; the answer differs (-want +got):\n%s", err, cmp.Diff(want, string(got)))
	}
	for i, want := range []string{"nok", "ok", "unknown", "red"} {
		if !strings.Contains(string(list.Attr[i]), `"currState":"`+want+`"`) {
			t.Errorf("%s is not %s", list.Attr[i], want)
		}
		if w := b.Call("POST", endpointPath, string(list.Attr[i]), "Content-Type", "application/json"); w.Code != 200 {
			t.Errorf("sent back: %d %s", w.Code, w.Body)
		}
	}
	b.MustPost(strings.Replace(apitest.Demo, `"protocol":"tcp"`, `"protocol":"tcp","Monitor":true`, 1))
	var states []string
	for _, e := range b.List()[0].Endpoints {
		states = append(states, e.State)
	}
	if want := []string{"inactive", "active"}; !cmp.Equal(states, want) {
		t.Errorf("endpoints are %q, want %q", states, want)
	}
	b.MustPost(apitest.Demo) // monitor is an ordinary field: it can be turned off in place
	if e := b.List()[0]; e.Endpoints[0].State != "" || e.ServiceArguments.Monitor {
		t.Errorf("not monitored any more: %+v", e)
	}
}

func TestEndpointHostState(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	b.Fake.Health = []*report.EndpointHealth{health(report.HealthUp, "31.31.31.1")}
	for _, tc := range []struct {
		body string
		code int
		want string
	}{
		{`{"hostName":"31.31.31.1","epPort":5001,"epProto":"tcp","state":"red"}`, 200, "31.31.31.1 5001 tcp true"},
		{`{"hostName":"31.31.31.1","state":"green"}`, 200, "31.31.31.1 0 auto false"},
		{`{"hostName":"31.31.31.1","epPort":5001,"state":"yellow"}`, 200, "31.31.31.1 5001 auto false"},
		{`{"hostName":"31.31.31.9","epPort":5001,"epProto":"tcp","state":"red"}`, 404, "nothing is probed at 31.31.31.9, port 5001, by tcp"},
		{`{"hostName":"31.31.31.1","state":"blue"}`, 400, `state "blue" is not known (allowed: green or yellow (its probe decides), red (it takes no new connection))`},
		{`{"hostName":"31.31.31.1"}`, 400, `state "" is not known`},
		{`{"hostName":"31.31.31.1","epPort":70000,"state":"red"}`, 400, `epPort "70000" is out of range`},
		{`{"hostName":"31.31.31.1","epPort":-1,"state":"red"}`, 400, `epPort "-1" is out of range`},
		{`{"hostName":"31.31.31.1","epProto":"telnet","state":"red"}`, 400, `epProto "telnet" is not known`},
		{`{"hostName":"x","state":"red"}`, 400, `hostName "x" is not an IP address`},
		{`{"hostName":"31.31.31.1","state":"red","more":1}`, 400, `unknown property "more"`},
	} {
		before := len(b.Fake.HostStates)
		w := b.Call("POST", statePath, tc.body, "Content-Type", "application/json")
		switch {
		case w.Code != tc.code:
			t.Errorf("%s: got %d %s, want code %d", tc.body, w.Code, w.Body, tc.code)
		case w.Code == 200:
			if got := b.Fake.HostStates[before:]; fmt.Sprint(got) != "["+tc.want+"]" {
				t.Errorf("%s: got %q, want [%s]", tc.body, got, tc.want)
			}
		case !strings.Contains(apitest.ProblemOf(t, w).Message, tc.want):
			t.Errorf("%s: %s\nwant %s", tc.body, w.Body, tc.want)
		}
	}
}

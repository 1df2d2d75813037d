package services_test

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi"
	"loxilb/internal/api/httpapi/services"
	"loxilb/test/apitest"
)

// TestDrainRequests checks that a drain is shown with its remaining connections and its end until
// it is undrained.
func TestDrainRequests(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	b.Fake.Conns = apitest.Connections()
	for i := range b.Fake.Conns[:2] { // another port of a service with a range, whose endpoint is named by the first port
		b.Fake.Conns[i].Endpoint = netip.MustParseAddrPort("31.31.31.1:5003")
	}
	const path = httpapi.BaseURL + "/config/drain"
	for body, field := range map[string]string{
		`{"endpoint":"me"}`:                                "endpoint",
		`{"endpoint":"31.31.31.1:0"}`:                      "endpoint",
		`{"endpoint":"31.31.31.1:5001","rate":10001}`:      "rate",
		`{"endpoint":"31.31.31.1:5001","within":-1}`:       "within",
		`{"endpoint":"31.31.31.1:5001","within":31536001}`: "within",
	} {
		if e := apitest.ProblemOf(t, b.Call("POST", path, body)); e.Code != 400 || e.Field != field {
			t.Errorf("%s: got %+v, want code 400 about %s", body, e, field)
		}
	}
	if w := b.Call("POST", path, `{"endpoint":"31.31.31.1:5001"}`); w.Code != 404 {
		t.Errorf("an endpoint of no service: %d %s", w.Code, w.Body)
	}
	b.Call("POST", httpapi.BaseURL+"/config/loadbalancer", `{"serviceArguments":{"externalIP":"20.20.20.1","port":2020,"protocol":"tcp"},
		"endpoints":[{"endpointIP":"31.31.31.1","targetPort":5001,"weight":1}]}`)
	b.Call("POST", httpapi.BaseURL+"/config/loadbalancer", `{"serviceArguments":{"externalIP":"20.20.20.2","port":2020,"protocol":"tcp"},
		"endpoints":[{"endpointIP":"20.20.20.1","targetPort":2020,"weight":1}]}`)
	for _, service := range []string{"20.20.20.1:2020", "20.20.20.1"} {
		if e := apitest.ProblemOf(t, b.Call("POST", path, `{"endpoint":"`+service+`"}`)); e.Code != 400 || !strings.Contains(e.Message, "is a service") {
			t.Errorf("a service as endpoint: %+v", e)
		}
	}
	const drained = `{"kind":"Drain","spec":{"endpoint":"20.20.20.1:2020"}}`
	for _, objects := range []string{drained, drained + "," + apitest.Object(9, "", "10.0.0.1")} {
		if code, _, e := b.Apply(`{"objects":[` + objects + `]}`); code != 400 || !strings.Contains(e.Message, "is a service") {
			t.Errorf("a service as endpoint, by apply: %d %+v", code, e)
		}
	}
	for _, within := range []string{"", `,"within":60,"rate":2`} {
		if w := b.Call("POST", path, `{"endpoint":"31.31.31.1:5001"`+within+`}`); w.Code != 200 {
			t.Fatalf("got %d %s, want code 200", w.Code, w.Body)
		}
		var list v1.DrainList
		if err := json.Unmarshal(b.Call("GET", path+"/all", "").Body.Bytes(), &list); err != nil || len(list.DrainAttr) != 1 {
			t.Fatalf("got %+v, %v, want no error, 1 element in list.DrainAttr", list, err)
		}
		d := list.DrainAttr[0]
		if d.Endpoint != "31.31.31.1:5001" || d.Connections != 1 || d.Sockets != 3 {
			t.Errorf(`got %+v, want d.Endpoint == "31.31.31.1:5001", d.Connections == 1, d.Sockets == 3`, d)
		}
		switch {
		case within == "" && (d.Rate != services.DrainRate || d.Deadline != nil || d.Done != nil):
			t.Errorf("without a deadline: %+v", d)
		case within != "" && (d.Rate != 2 || time.Until(*d.Deadline) > time.Minute ||
			time.Until(*d.Deadline) < time.Minute-10*time.Second || d.Done.Before(d.Deadline.Add(-time.Second))):
			t.Errorf("in a minute: %+v", d)
		}
	}
	warned := b.Call("POST", path, `{"endpoint":"31.31.31.1:5001"}`).Header().Values("Warning")
	if want := `299 loxilb "service 20.20.20.1:2020/tcp has no endpoint left for new connections: 1 drained"`; len(warned) != 1 || warned[0] != want {
		t.Errorf("after draining the last endpoint: %q, want %s", warned, want)
	}
	b.Call("POST", httpapi.BaseURL+"/config/loadbalancer", `{"serviceArguments":{"externalIP":"20.20.20.1","port":2020,"protocol":"tcp"},
		"endpoints":[{"endpointIP":"31.31.31.1","targetPort":5001,"weight":1},{"endpointIP":"32.32.32.1","targetPort":5001,"weight":1}]}`)
	if warned = b.Call("POST", path, `{"endpoint":"31.31.31.1:5001"}`).Header().Values("Warning"); len(warned) > 0 {
		t.Errorf("after draining one of two endpoints: %q", warned)
	}
	if w := b.Call("DELETE", path+"?endpoint=31.31.31.1:5001", ""); w.Code != 200 {
		t.Errorf("got %d %s, want code 200", w.Code, w.Body)
	}
	const not = "endpoint 31.31.31.1:5001 is not drained: loxicmd get drain lists drained endpoints"
	const unchanged = `{"message":"unchanged","result":"Success"}`
	w := b.Call("DELETE", path+"?endpoint=31.31.31.1:5001", "")
	if got := strings.TrimSpace(w.Body.String()); w.Code != 200 || got != unchanged || w.Header().Get("Warning") != `299 loxilb "`+not+`"` {
		t.Errorf("once more: %d %s %q", w.Code, got, w.Header())
	}
	for _, want := range []string{`{"result":"Success"}`, unchanged} {
		w := b.Call("POST", path, `{"endpoint":"31.31.31.1:5001"}`)
		if got := strings.TrimSpace(w.Body.String()); w.Code != 200 || got != want {
			t.Errorf("drain: %d %s, want %s", w.Code, got, want)
		}
	}
}

package network_test

import (
	"bytes"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"loxilb/internal/api/httpapi"
	"loxilb/internal/lb/bgp"
	"loxilb/test/apitest"
)

const base = httpapi.BaseURL + "/config/bgp"

// newBench returns an API that speaks BGP.
func newBench(t *testing.T) *apitest.Bench {
	t.Helper()
	return apitest.New(t, func(o *httpapi.Options) {
		o.BGP = func() []bgp.Session {
			return []bgp.Session{{
				Neighbor: "10.0.0.2", State: bgp.Established, Since: time.Now().Add(-time.Hour), Flaps: 2, Sent: 3, Received: 4, BFD: "Up",
			}}
		}
	})
}

// exchange is a request and its answer.
type exchange struct {
	method, path, body string
	code               int
	has                string // part of the answer or its header Warning
}

func run(t *testing.T, b *apitest.Bench, list []exchange) {
	t.Helper()
	for _, e := range list {
		w := b.Call(e.method, base+e.path, e.body, "Content-Type", "application/json")
		if got := w.Body.String() + w.Header().Get("Warning"); w.Code != e.code || !strings.Contains(got, e.has) {
			t.Errorf("%s %s %s: %d %s\nwant %d %s", e.method, e.path, e.body, w.Code, got, e.code, e.has)
		}
	}
}

// TestContract checks requests of the contract's clients, in the order of kube-loxilb, and that
// names of properties are matched without regard to case.
func TestContract(t *testing.T) {
	t.Parallel()
	const set, apply = "/policy/definedsets/prefix", "/policy/apply"
	run(t, newBench(t), []exchange{
		{"POST", "/global", `{"localAs":64512,"routerId":"10.0.0.1","setNextHopSelf":true,"listenPort":179}`, 200, "Success"},
		{"POST", "/global", `{"localAs":64512,"routerId":"10.0.0.1","setNextHopSelf":true,"listenPort":179}`, 409, "exists already"},
		{"GET", "/global/all", "", 200, `{"SetNextHopSelf":true,"localAs":64512,"routerId":"10.0.0.1"}`},
		{"POST", "/neigh", `{"ipAddress":"10.0.0.2","remoteAs":4200000000,"remotePort":179,"setMultiHop":true}`, 200, ""},
		{"GET", "/neigh/all", "", 200, `"prefixesReceived":4,"prefixesSent":3,"remoteAs":4200000000,"setMultiHop":true,"since":`},
		{"GET", "/neigh/all", "", 200, `"state":"Established","updowntime":"1h0m0s"`},
		{"POST", "/neigh", `{"ipAddress":"10.0.0.3","remoteAs":0}`, 400, `remoteAs \"0\" is not an AS number (allowed: 1 to 4294967295)`},
		{"POST", "/neigh", `{"ipAddress":"10.0.0.3","remoteAs":1,"remotePort":70000}`, 400, `remotePort \"70000\" is not a port`},
		{"POST", set, `{"name":"ps1","prefixList":[{"ipPrefix":"10.0.0.0/8","masklengthRange":"24..32"}]}`, 200, ""},
		{"POST", set, `{"name":"ps1","definedType":"aspath","List":["1"]}`, 400, "is not the type in the path"},
		{"GET", set + "/ps1", "", 200, `{"definedType":"prefix","name":"ps1","prefixList":[{"ipPrefix":"10.0.0.0/8","masklengthRange":"24..32"}]}`},
		{"GET", set + "/all", "", 200, `"name":"ps1"`},
		{"GET", "/policy/definedsets/nothing/all", "", 400, "is not a type of set"},
		{"POST", "/policy/definedsets/community", `{"name":"cs1","List":["65000:100"]}`, 200, ""},
		{"GET", "/policy/definedsets/all", "", 200, `"List":["65000:100"]`},
		{
			"POST", "/policy/definitions", `{"name":"p1","statement":[{"name":"s1","conditions":{"matchPrefixSet":{"matchSetOption":"any","prefixSet":"ps1"}},` +
				`"actions":{"routeDisposition":"accept-route","bgpActions":{"setMed":"+50","setLocalPerf":10,"setAsPathPrepend":{"as":"last-as","repeatN":2}}}}]}`, 200, "",
		},
		{
			"GET", "/policy/definitions/all", "", 200,
			`{"name":"p1","statements":[{"actions":{"bgpActions":{"setAsPathPrepend":{"as":"last-as","repeatN":2},"setLocalPerf":10,"setMed":"+50"},` +
				`"routeDisposition":"accept-route"},"conditions":{"matchPrefixSet":{"prefixSet":"ps1"}},"name":"s1"}]}`,
		},
		{"DELETE", set + "/ps1", "", 409, "set prefix/ps1 is used by policy p1: change or delete that first"},
		{"POST", apply, `{"ipAddress":"10.0.0.2","policyType":"import","policies":["p1"],"routeAction":""}`, 200, ""},
		{"DELETE", "/policy/definitions/p1", "", 409, "policy p1 is used by the application at 10.0.0.2/import: change or delete that first"},
		{"POST", apply, `{"ipAddress":"10.0.0.2","policyType":"import","policies":["p2"],"routeAction":"reject"}`, 200, ""},
		{"GET", apply + "/all", "", 200, `{"ipAddress":"10.0.0.2","policies":["p1","p2"],"policyType":"import","routeAction":"reject"}`},
		{"DELETE", apply, `{"ipAddress":"10.0.0.2","policyType":"import","policies":["p1"]}`, 200, ""},
		{"GET", apply + "/all", "", 200, `"policies":["p2"]`},
		{"DELETE", apply, `{"ipAddress":"10.0.0.2","policyType":"import","policies":["p2"]}`, 200, ""},
		{"GET", apply + "/all", "", 200, "[\n]"},
		{"DELETE", apply + "/global/export", "", 200, "bgpapply global/export does not exist"},
		{"DELETE", "/policy/definitions/p1", "", 200, ""},
		{"DELETE", set + "/ps1", "", 200, ""},
		{"DELETE", "/neigh/10.0.0.2?remoteAs=64513", "", 200, "bgpneighbor 10.0.0.2 is not deleted: its AS is 4200000000, not 64513"},
		{"DELETE", "/neigh/10.0.0.2?remoteAs=4200000000", "", 200, ""},
		{"GET", "/neigh/all", "", 200, "[\n]"},
		{"DELETE", "/global", "", 200, ""},
		{"DELETE", "/global", "", 200, "does not exist"},
	})
}

// TestPassword checks that a password is stored and never shown. A request without a password, or
// with asterisks in its place, keeps it. A file exported on another machine is refused.
func TestPassword(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const object = `{"kind":"BGPNeighbor","spec":{"ipAddress":"10.0.0.2","remoteAs":1,"password":"********"%}}`
	apply := func(body string) string {
		return b.Call("POST", httpapi.BaseURL+"/config/apply", `{"objects":[`+body+`]}`, "Content-Type", "application/json").Body.String()
	}
	const none = `stands for a stored password, and neighbor 10.0.0.2 has none`
	if got := apply(strings.Replace(object, "%", "", 1)); !strings.Contains(got, none) {
		t.Errorf("got %v, want %q in it", got, none)
	}
	run(t, b, []exchange{
		{"POST", "/neigh", `{"ipAddress":"10.0.0.2","remoteAs":1,"password":"secret"}`, 200, ""},
		{"GET", "/neigh/all", "", 200, `"password":"********"`},
		{"POST", "/neigh", `{"ipAddress":"10.0.0.2","remoteAs":1,"password":"********"}`, 409, "exists already with the same content"},
	})
	if got := apply(strings.Replace(object, "%", "", 1)); !strings.Contains(got, `"unchanged":1`) {
		t.Errorf("got %v, want `\"unchanged\":1` in got", got)
	}
	if got := apply(strings.Replace(object, "%", `,"holdTime":30`, 1)); strings.Contains(got, "secret") || !strings.Contains(got, `"action":"change"`) {
		t.Errorf("got %v, want no \"secret\" in got, `\"action\":\"change\"` in got", got)
	}
	for _, c := range []struct{ member, want string }{
		{``, "secret"}, {`,"password":null`, "secret"}, {`,"password":"new"`, "new"}, {`,"password":""`, ""}, {``, ""}, {`,"password":"secret"`, "secret"},
	} {
		b.Call("POST", base+"/neigh", `{"ipAddress":"10.0.0.2","remoteAs":1,"holdTime":30`+c.member+`}`, "Content-Type", "application/json")
		if n, _ := b.Store.BGPNeighbors.Get(b.Store.Snapshot(), "10.0.0.2"); n.Password != c.want {
			t.Errorf("POST with %q: password %q, want %q", c.member, n.Password, c.want)
		}
	}
	if got := apply(`{"kind":"BGPNeighbor","spec":{"ipAddress":"10.0.0.2","remoteAs":1}}`); !strings.Contains(got, `"action":"change"`) {
		t.Errorf("a file without a password keeps it: %s", got)
	}
	run(t, b, []exchange{{"POST", "/neigh", `{"ipAddress":"10.0.0.2","remoteAs":1,"password":"secret","holdTime":30}`, 200, ""}})
	for _, path := range []string{"/config/objects", "/config/bgp/neigh/all", "/config/revisions"} {
		if w := b.Call("GET", httpapi.BaseURL+path, ""); w.Code != http.StatusOK || strings.Contains(w.Body.String(), "secret") {
			t.Errorf(`%s: got %d %s, want code 200, no "secret" in the body`, path, w.Code, w.Body)
		}
	}
	n, _ := b.Store.BGPNeighbors.Get(b.Store.Snapshot(), "10.0.0.2")
	if n.Password != "secret" || n.Hold != 30*time.Second {
		t.Errorf(`got %+v, want n.Password == "secret", n.Hold == 30*time.Second`, n)
	}
}

// TestOff checks that without --bgp only objects that are already stored can be applied.
func TestOff(t *testing.T) {
	t.Parallel()
	on := newBench(t)
	run(t, on, []exchange{{"POST", "/neigh", `{"ipAddress":"10.0.0.2","remoteAs":1}`, 200, ""}})
	n := slices.Collect(on.Store.BGPNeighbors.All(on.Store.Snapshot()))
	off := apitest.New(t, nil)
	run(t, off, []exchange{{"POST", "/neigh", `{"ipAddress":"10.0.0.2","remoteAs":1}`, 501, "BGP is off: start loxilb with --bgp"}})
	if len(n) != 1 || len(slices.Collect(off.Store.BGPNeighbors.All(off.Store.Snapshot()))) != 0 {
		t.Errorf("got warnings %+v, want one warning, and no neighbor stored", n)
	}
}

// TestExport checks that an exported configuration can be imported again, with the password.
func TestExport(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	run(t, b, []exchange{{"POST", "/neigh", `{"ipAddress":"10.0.0.2","remoteAs":1,"password":"secret"}`, 200, ""}})
	w := b.Call("GET", httpapi.BaseURL+"/config/export", "")
	if !strings.Contains(w.Body.String(), "********") || strings.Contains(w.Body.String(), "secret") {
		t.Errorf(`got %v, want "********" in the body, no "secret" in the body`, w.Body)
	}
	var form bytes.Buffer
	m := multipart.NewWriter(&form)
	part, err := m.CreateFormFile("configuration", "c.json")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = part.Write(w.Body.Bytes()) // into memory
	_ = m.Close()
	w = b.Call("POST", httpapi.BaseURL+"/config/import", form.String(), "Content-Type", m.FormDataContentType())
	n, _ := b.Store.BGPNeighbors.Get(b.Store.Snapshot(), "10.0.0.2")
	if w.Code != http.StatusOK || n.Password != "secret" {
		t.Errorf(`got %d %s, %+v, want code 200, n.Password == "secret"`, w.Code, w.Body, n)
	}
}

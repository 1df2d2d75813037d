package traffic_test

import (
	"encoding/json"
	"testing"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi"
	"loxilb/internal/lb/policy"
	"loxilb/test/apitest"
)

// TestMirrorRequests checks that a mirror, as sent by the contract's clients and by ours, is shown
// as it was sent, and can be sent back.
func TestMirrorRequests(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	b.Fake.Mirrored = policy.MirrorStats{Packets: 1, Bytes: 2, Lost: 3, Attached: 1}
	const path = httpapi.BaseURL + "/config/mirror"
	const target = `"targetObject":{"attachment":1,"mirrObjName":"hs1"}`
	for body, field := range map[string]string{
		`{"mirrorIdent":"","mirrorInfo":{"type":0,"port":"hs0"},` + target + `}`:                                                          "mirrorIdent",
		`{"mirrorIdent":"m","mirrorInfo":{"type":4,"port":"hs0"},` + target + `}`:                                                         "type",
		`{"mirrorIdent":"m","mirrorInfo":{"type":0},` + target + `}`:                                                                      "port",
		`{"mirrorIdent":"m","mirrorInfo":{"type":1,"port":"hs0","vlan":-1},` + target + `}`:                                               "vlan",
		`{"mirrorIdent":"m","mirrorInfo":{"type":2,"remoteIP":"x","sourceIP":"10.0.0.1","tunnelID":1},` + target + `}`:                    "remoteIP",
		`{"mirrorIdent":"m","mirrorInfo":{"type":2,"remoteIP":"10.0.0.2","tunnelID":1},` + target + `}`:                                   "sourceIP",
		`{"mirrorIdent":"m","mirrorInfo":{"type":3,"remoteIP":"10.0.0.2","sourceIP":"10.0.0.1","tunnelID":4294967297},` + target + `}`:    "tunnelID",
		`{"mirrorIdent":"m","mirrorInfo":{"type":0,"port":"hs0"},"targetObject":{"attachment":1,"mirrObjName":"hs1","direction":"both"}}`: "direction",
		`{"mirrorIdent":"m","mirrorInfo":{"type":0,"port":"hs0"},"targetObject":{"attachment":4,"mirrObjName":"10.0.0.0/8"}}`:             "mirrObjName",
		`{"mirrorIdent":"m","mirrorInfo":{"type":0,"port":"hs0"},"targetObject":{"attachment":3,"mirrObjName":"10.0.0.0/40"}}`:            "mirrObjName",
	} {
		if e := apitest.ProblemOf(t, b.Call("POST", path, body)); e.Code != 400 || e.Field != field {
			t.Errorf("%s: got %+v, want code 400 about %s", body, e, field)
		}
	}
	const first = `{"mirrorIdent":"mirr-1","mirrorInfo":{"type":0,"port":"hs0","vlan":0,"remoteIP":"","sourceIP":"","tunnelID":0},` + target + `}`
	for _, want := range []int{200, 409} {
		if w := b.Call("POST", path, first); w.Code != want {
			t.Errorf("%d %s, want %d", w.Code, w.Body, want)
		}
	}
	b.Call("POST", path,
		`{"mirrorIdent":"tunnel","mirrorInfo":{"type":3,"remoteIP":"10.0.0.2","sourceIP":"10.0.0.1","tunnelID":7,"sample":100},`+
			`"targetObject":{"attachment":2,"mirrObjName":"web"}}`)
	var list v1.MirrorList
	if err := json.Unmarshal(b.Call("GET", path+"/all", "").Body.Bytes(), &list); err != nil || len(list.MirrAttr) != 2 {
		t.Fatalf("got %+v, %v, want no error, 2 elements in list.MirrAttr", list, err)
	}
	if m := list.MirrAttr[0]; m.MirrorInfo != (v1.MirrorInfo{Port: "hs0"}) ||
		m.TargetObject != (v1.MirrorTarget{Attachment: 1, MirrObjName: "hs1", Direction: "in"}) || m.Sync == nil || *m.Sync != 0 || m.Lost != 3 {
		t.Errorf(`got %+v, want m.MirrorInfo == v1.MirrorInfo{Port: "hs0"}, m.TargetObject == v1.MirrorTarget{Attachment: 1, `+
			`MirrObjName: "hs1", Direction: "in"}, m.Sync != nil, *m.Sync == 0, m.Lost == 3`,
			m)
	}
	m := list.MirrAttr[1]
	if m.MirrorInfo != (v1.MirrorInfo{Type: 3, RemoteIP: "10.0.0.2", SourceIP: "10.0.0.1", TunnelID: 7, Sample: 100}) || m.TargetObject.Direction != "both" {
		t.Errorf(`got %+v, want m.MirrorInfo == v1.MirrorInfo{Type: 3, RemoteIP: "10.0.0.2", `+
			`SourceIP: "10.0.0.1", TunnelID: 7, Sample: 100}, m.TargetObject.Direction == "both"`,
			m)
	}
	again, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if w := b.Call("POST", path, string(again)); w.Code != 409 {
		t.Errorf("sending the listed mirror back changes it: %d %s", w.Code, w.Body)
	}
	for gone := range 2 { // the second time it no longer exists
		if w := b.Call("DELETE", path+"/ident/tunnel", ""); w.Code != 200 || len(w.Header().Values("Warning")) != gone {
			t.Errorf("got %d %s with warnings %q, want code 200 with %d", w.Code, w.Body, w.Header(), gone)
		}
	}
}

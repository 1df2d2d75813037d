package traffic_test

import (
	"encoding/json"
	"slices"
	"testing"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi"
	"loxilb/internal/lb/policy"
	"loxilb/test/apitest"
)

// TestPolicyRequests checks that a policer, as sent by the contract's clients and by ours, is shown
// as it was sent, and can be sent back.
func TestPolicyRequests(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	b.Fake.Policed = policy.PolicerStats{Policed: policy.Policed{Packets: [3]uint64{1, 2, 3}, Bytes: [3]uint64{10, 20, 30}}, Attached: 1}
	const path = httpapi.BaseURL + "/config/policy"
	const target = `"targetObject":{"attachment":1,"polObjName":"hs0"}`
	for body, field := range map[string]string{
		`{"policyIdent":"","policyInfo":{"committedInfoRate":1,"peakInfoRate":1},` + target + `}`:                         "policyIdent",
		`{"policyIdent":"p","policyInfo":{"committedInfoRate":0,"peakInfoRate":1},` + target + `}`:                        "committedRate",
		`{"policyIdent":"p","policyInfo":{"committedInfoRate":2,"peakInfoRate":1},` + target + `}`:                        "peakInfoRate",
		`{"policyIdent":"p","policyInfo":{"committedInfoRate":1e300,"peakInfoRate":1},` + target + `}`:                    "committedRate",
		`{"policyIdent":"p","policyInfo":{"type":2,"committedInfoRate":1,"peakInfoRate":1},` + target + `}`:               "type",
		`{"policyIdent":"p","policyInfo":{"committedInfoRate":1,"peakInfoRate":1,"excessBlkSize":-1},` + target + `}`:     "committedBlkSize",
		`{"policyIdent":"p","policyInfo":{"committedInfoRate":1,"peakInfoRate":1},"targetObject":{"attachment":9}}`:       "attachment",
		`{"policyIdent":"p","policyInfo":{"committedInfoRate":1,"peakInfoRate":1},"targetObject":{"attachment":1}}`:       "polObjName",
		`{"policyIdent":"p","policyInfo":{"committedRate":"5mb","peakInfoRate":1},` + target + `}`:                        "committedRate",
		`{"policyIdent":"p","policyInfo":{"type":1,"committedInfoRate":1,"committedBlkSize":99999999999},` + target + `}`: "committedBlkSize",
	} {
		if e := apitest.ProblemOf(t, b.Call("POST", path, body)); e.Code != 400 || e.Field != field {
			t.Errorf("%s: got %+v, want code 400 about %s", body, e, field)
		}
	}
	const first = `{"policyIdent":"pol-hs0","policyInfo":{"type":0,"colorAware":false,"committedInfoRate":100,"peakInfoRate":100,` +
		`"committedBlkSize":6000,"excessBlkSize":12000},` +
		target + `}`
	for _, want := range []int{200, 409} {
		if w := b.Call("POST", path, first); w.Code != want {
			t.Errorf("%d %s, want %d", w.Code, w.Body, want)
		}
	}
	if w := b.Call("POST", path, `{"policyIdent":"other","policyInfo":{"committedInfoRate":1,"peakInfoRate":1},`+target+`}`); w.Code != 400 {
		t.Errorf("a second one at the same port: %d %s", w.Code, w.Body)
	}
	b.Call("POST", path, `{"policyIdent":"slow","policyInfo":{"type":1,"committedInfoRate":0.01},"targetObject":{"attachment":3,"polObjName":"10.0.0.0/8","direction":"both"}}`)
	b.Call("POST", path, `{"policyIdent":"ruled","policyInfo":{"type":1,"committedInfoRate":1},"targetObject":{"attachment":4,"polObjName":"preference:7,sourceIP:10.1.2.3/8"}}`)
	list := b.Policies()
	if len(list) != 3 || list[1].TargetObject != (v1.PolicyTarget{Attachment: 4, PolObjName: "sourceIP:10.0.0.0/8,preference:7", Direction: "in"}) {
		t.Fatalf("got %+v, want 3 elements, list[1].TargetObject == v1.PolicyTarget{Attachment: 4, "+
			`PolObjName: "sourceIP:10.0.0.0/8,preference:7", Direction: "in"}`,
			list)
	}
	list = slices.Delete(list, 1, 2)
	p := list[0]
	if p.PolicyInfo != (v1.PolicyInfo{CommittedInfoRate: 100, PeakInfoRate: 100, CommittedRate: "100mbit", PeakRate: "100mbit", CommittedBlkSize: 6000, ExcessBlkSize: 12000}) ||
		p.TargetObject != (v1.PolicyTarget{Attachment: 1, PolObjName: "hs0", Direction: "in"}) || p.Attached != 1 || *p.Red != (v1.PolicyCount{Packets: 3, Bytes: 30}) {
		t.Errorf("the policer is listed as %+v", p)
	}
	if p := list[1]; p.PolicyInfo != (v1.PolicyInfo{Type: 1, CommittedInfoRate: 0.01, CommittedRate: "10kbit", CommittedBlkSize: 15000, ExcessBlkSize: 30000}) {
		t.Errorf("got %+v, want p.PolicyInfo == v1.PolicyInfo{Type: 1, CommittedInfoRate: 0.01, "+
			`CommittedRate: "10kbit", CommittedBlkSize: 15000, ExcessBlkSize: 30000}`,
			p)
	}
	again, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if w := b.Call("POST", path, string(again)); w.Code != 409 {
		t.Errorf("sending the listed policer back changes it: %d %s", w.Code, w.Body)
	}
	for gone := range 2 { // the second time it no longer exists
		if w := b.Call("DELETE", path+"/ident/slow", ""); w.Code != 200 || len(w.Header().Values("Warning")) != gone {
			t.Errorf("got %d %s with warnings %q, want code 200 with %d", w.Code, w.Body, w.Header(), gone)
		}
	}
	if left := b.Policies(); len(left) != 2 {
		t.Errorf("got %+v, want 2 elements", left)
	}
}

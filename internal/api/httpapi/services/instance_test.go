package services_test

import (
	"strings"
	"testing"

	"loxilb/internal/api/httpapi"
	"loxilb/internal/lb"
	"loxilb/test/apitest"
)

func TestInstanceStates(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	const at = httpapi.BaseURL + "/config/cistate"
	wantStates := func(want string) {
		t.Helper()
		w := b.Call("GET", at+"/all", "")
		got := strings.ReplaceAll(w.Body.String(), "\n", "")
		if ct := w.Header().Get("Content-Type"); w.Code != 200 || ct != "application/json" || got != `{"Attr":[`+want+`]}` {
			t.Errorf("%d %s %s, want %s", w.Code, ct, got, want)
		}
	}
	const unknown = `{"instance":"llb-inst0","state":"NOT_DEFINED","sync":0,"vip":"0.0.0.0"}`
	wantStates(unknown)
	for range 2 { // kube-loxilb sends it again at each start
		if w := b.Call("POST", at, `{"instance":"default","state":"MASTER","vip":"0.0.0.0"}`, "Content-Type", "application/json"); !apitest.KubeChanged(w) {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	b.Call("POST", at, `{"instance":"llb-inst1","state":"BACKUP","vip":"123.123.123.9"}`)
	const second = `{"instance":"llb-inst1","state":"BACKUP","sync":0,"vip":"123.123.123.9"}`
	wantStates(`{"instance":"default","state":"MASTER","sync":0,"vip":"0.0.0.0"},` + second)
	if one, ok := b.Store.Instances.Get(b.Store.Snapshot(), lb.DefaultInstance); !ok || one.Role != lb.RoleMaster {
		t.Errorf("%+v", one)
	}
	for range 2 {
		if w := b.Call("POST", at, `{"state":"NOT_DEFINED"}`); !apitest.KubeChanged(w) {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	wantStates(unknown + "," + second)
	for body, want := range map[string]string{
		`{"instance":"a","state":"ACTIVE"}`:                   `state "ACTIVE" is not known (allowed: MASTER, BACKUP, FAULT, STOP or NOT_DEFINED)`,
		`{"instance":"a"}`:                                    `state "" is not known`,
		`{"instance":"a:b","state":"MASTER"}`:                 `instance "a:b" has a colon`,
		`{"instance":"a","state":"MASTER","vip":"x"}`:         `vip "x" is not an IP address`,
		`{"instance":"a","state":"MASTER","vip":"224.0.0.1"}`: `vip "224.0.0.1" is a multicast address`,
	} {
		if w := b.Call("POST", at, body); w.Code != 400 || !strings.Contains(apitest.ProblemOf(t, w).Message, want) {
			t.Errorf("%s: %d %s, want %s", body, w.Code, w.Body, want)
		}
	}
	wantStates(unknown + "," + second)
}

package services_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"loxilb/internal/api/httpapi"
	"loxilb/internal/control/store"
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
			t.Errorf("got %d %s, want an answer that reports a change", w.Code, w.Body)
		}
	}
	b.Call("POST", at, `{"instance":"llb-inst1","state":"BACKUP","vip":"123.123.123.9"}`)
	const second = `{"instance":"llb-inst1","state":"BACKUP","sync":0,"vip":"123.123.123.9"}`
	wantStates(`{"instance":"default","state":"MASTER","sync":0,"vip":"0.0.0.0"},` + second)
	if one, ok := b.Store.Instances.Get(b.Store.Snapshot(), lb.DefaultInstance); !ok || one.Role != lb.RoleMaster {
		t.Errorf("got %+v, want ok, one.Role == lb.RoleMaster", one)
	}
	for range 2 {
		if w := b.Call("POST", at, `{"state":"NOT_DEFINED"}`); !apitest.KubeChanged(w) {
			t.Errorf("got %d %s, want an answer that reports a change", w.Code, w.Body)
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

// TestServiceOfBackup checks that the user who creates a service on a node that does not answer for
// its VIP learns that, and how to have it answer. Controllers have assigned the role themselves.
func TestServiceOfBackup(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	b.Call("POST", httpapi.BaseURL+"/config/cistate", `{"instance":"llb-inst0","state":"BACKUP"}`)
	for _, tc := range []struct{ vip, more, want string }{
		{"20.20.20.1", "", "this node is BACKUP of instance llb-inst0 and does not answer for VIP 20.20.20.1"},
		{"20.20.20.2", `,"name":"own:own"`, ""},
		{"20.20.20.3", `,"managed":true,"owner":"kube"`, ""},
	} {
		w := b.Post(`{"serviceArguments":{"externalIP":"` + tc.vip + `","port":80,"protocol":"tcp"` + tc.more + `},"endpoints":[{"endpointIP":"31.31.31.1","targetPort":80,"weight":1}]}`)
		if got := w.Header().Get("Warning"); w.Code != 200 || (got != "") != (tc.want != "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %d %s, warning %q", tc.vip, w.Code, w.Body, got)
		}
	}
}

// away is a shared store that does not answer.
type away struct{ store.Remote }

func (away) String() string { return "etcd at away" }

func (away) Read(context.Context, func(store.RemoteEntry)) (int64, error) {
	return 0, errors.New("no answer")
}

// TestSharedServiceOfBackup checks that nobody is asked to create a service on the MASTER, too, if
// all nodes share it.
func TestSharedServiceOfBackup(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	b.Call("POST", httpapi.BaseURL+"/config/cistate", `{"instance":"llb-inst0","state":"BACKUP"}`)
	if err := b.Store.Share(away{}, "node1", store.JoinRefuse); err != nil {
		t.Fatal(err)
	}
	go b.Store.Follow(t.Context()) // the request fails at once
	w := b.Post(`{"serviceArguments":{"externalIP":"20.20.20.1","port":80,"protocol":"tcp"},"endpoints":[{"endpointIP":"31.31.31.1","targetPort":80,"weight":1}]}`)
	if got := w.Header().Get("Warning"); w.Code != 503 || got != "" {
		t.Errorf("%d %s, warning %q", w.Code, w.Body, got)
	}
}

package network_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/internal/api/httpapi"
	"loxilb/internal/api/httpapi/objects"
	"loxilb/internal/control/status"
	"loxilb/internal/control/store"
	"loxilb/internal/lb/netobj"
	"loxilb/test/apitest"
)

// TestApplyNetwork checks that objects of the kernel's network are applied together with all
// others, and that objects of others in the kernel are not touched.
func TestApplyNetwork(t *testing.T) {
	t.Parallel()
	b := apitest.NewNet(t)
	theirs, err := netobj.ParseAddress("eth0", "10.0.0.9/24")
	if err != nil {
		t.Fatal(err)
	}
	b.Addresses.Objects = []netobj.Address{theirs}
	const all = `{"kind":"ip","spec":{"dev":"eth0","ipAddress":"10.0.0.1/24"}},{"kind":"ipv4address","spec":{"dev":"eth0","ipAddress":"10.0.0.9/24"}},` +
		`{"kind":"route","spec":{"destinationIPNet":"10.1.0.0/16","gateway":"10.0.0.254","protocol":"static"}},` +
		`{"kind":"neigh","spec":{"ipAddress":"10.0.0.7","dev":"eth0","macAddress":"02:00:00:00:00:07"}},` +
		`{"kind":"fw","spec":{"ruleArguments":{"sourceIP":"10.0.0.0/8","preference":5},"opts":{"drop":true}}},` +
		`{"kind":"policy","spec":{"policyIdent":"p","policyInfo":{"committedInfoRate":10,"peakInfoRate":20},"targetObject":{"attachment":1,"polObjName":"eth0"}}}`
	code, r, e := b.Apply(`{"objects":[` + all + `]}`)
	if want := "add IPaddress 10.0.0.1/24 eth0; add Neighbor 10.0.0.7 eth0; add Route 10.1.0.0/16; add Policy p; add Firewall sourceIP:10.0.0.0/8," +
		"preference:5; 1 unchanged"; code != 200 ||
		apitest.DescribeChanges(r) != want {
		t.Fatalf("got code %d, changes %s and problem %+v, want the changes %s", code, apitest.DescribeChanges(r), e, want)
	}
	saved := b.Call("GET", httpapi.BaseURL+"/config/objects", "").Body.String()
	if strings.Contains(saved, "10.0.0.9") || strings.Count(saved, `"kind"`) != 5 {
		t.Errorf("got %v, want no \"10.0.0.9\" in saved, `\"kind\"` 5 times in saved", saved)
	}
	if code, r, e := b.Apply(saved); code != 200 || apitest.DescribeChanges(r) != "5 unchanged" {
		t.Errorf(`got %d %s %+v, want code 200, "5 unchanged"`, code, apitest.DescribeChanges(r), e)
	}
	if code, r, _ := b.Apply(`{"remove":true,"objects":[` + all + `]}`); code != 200 || len(r.Changes) != 5 {
		t.Errorf("got %d %s, want code 200, 5 elements in r.Changes", code, apitest.DescribeChanges(r))
	}
	for spec, want := range map[string]string{
		`{"kind":"ip","spec":{"dev":"eth9","ipAddress":"10.0.0.1/24"}}`:                               " there is no interface eth9",
		`{"kind":"ip","spec":{"dev":"eth0","ipAddress":"10.0.0.1"}}`:                                  "ipAddress",
		`{"kind":"vlanmember","spec":{"dev":"eth0"}}`:                                                 "metadata.vid",
		`{"kind":"fw","spec":{"ruleArguments":{"sourceIP":"x"},"opts":{}}}`:                           "ruleArguments.sourceIP",
		`{"kind":"fw","spec":{"ruleArguments":{},"opts":{"allow":true,"drop":true}}}`:                 "opts.drop",
		`{"kind":"policy","spec":{"policyIdent":"p","policyInfo":{"type":7},"targetObject":{}}}`:      "type",
		`{"kind":"vxlan-peer","metadata":{"vxlanID":1.5},"spec":{"peerIP":"10.0.0.1"}}`:               "metadata.vxlanID",
		`{"kind":"route","spec":{"destinationIPNet":"10.1.0.0/16","gateway":"10.0.0.1","metric":99}}`: "metric",
	} {
		code, _, e := b.Apply(`{"objects":[` + spec + `]}`)
		if code != 400 || len(e.Errors) != 1 || !strings.Contains(e.Errors[0].Field+" "+e.Errors[0].Message, want) {
			t.Errorf("%s: got %d %+v, want one error with %s", spec, code, e, want)
		}
	}
}

// TestApplyRefusedByKernel checks that an object that the kernel refuses undoes the whole change.
func TestApplyRefusedByKernel(t *testing.T) {
	t.Parallel()
	b := apitest.NewNet(t)
	b.Fake.ApplyErr = &status.Error{Failures: []status.Status{{
		ID: status.ID{Kind: "route", Key: "10.1.0.0/16"}, Err: fmt.Errorf("the kernel refuses it: %w", unix.EOPNOTSUPP), Next: time.Now(),
	}}}
	code, _, e := b.Apply(`{"objects":[` + apitest.Object(1, "", "10.0.0.1") + `,{"kind":"route","spec":{"destinationIPNet":"10.1.0.0/16","gateway":"10.0.0.254"}}]}`)
	if code != 400 || len(e.Errors) != 1 || e.Errors[0].Index != 1 || e.Errors[0].Message != "the kernel refuses it: operation not supported" {
		t.Errorf("got %d %+v, want code 400, 1 element in e.Errors, e.Errors[0].Index == 1, "+
			`e.Errors[0].Message == "the kernel refuses it: operation not supported"`,
			code, e)
	}
	if n := strings.Count(b.Call("GET", httpapi.BaseURL+"/config/objects", "").Body.String(), "kind"); n != 0 {
		t.Errorf("%d objects are left", n)
	}
}

// TestUndoLeavesWhatOthersChanged checks that changes that others make before the kernel's refusal
// is known are kept, and that the response says so. The undo is a revision of the requesting user.
func TestUndoLeavesWhatOthersChanged(t *testing.T) {
	t.Parallel()
	b := apitest.NewNet(t)
	b.Fake.ApplyErr = &status.Error{Failures: []status.Status{{
		ID: status.ID{Kind: "route", Key: "10.1.0.0/16"}, Err: fmt.Errorf("the kernel refuses it: %w", unix.EOPNOTSUPP), Next: time.Now(),
	}}}
	b.Fake.OnWait = func() {
		if _, _, err := b.Store.Commit(objects.Owner, func(tx *store.Tx) error {
			for s := range b.Store.Services.All(tx) {
				s.Endpoints = slices.Clone(s.Endpoints) // owned by the store
				s.Endpoints[0].Weight = 7
				if err := b.Store.Services.Put(tx, s); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	code, _, e := b.Apply(`{"objects":[` + apitest.Object(1, "", "10.0.0.1") + `,{"kind":"route","spec":{"destinationIPNet":"10.1.0.0/16","gateway":"10.0.0.254"}}]}`)
	key := b.List()[0].ServiceArguments
	want := fmt.Sprintf(
		"the change was undone, except for objects that others have changed since (service %s:%d/tcp): objects[1]: the kernel refuses it: operation not supported",
		key.ExternalIP, key.Port)
	if code != 400 || e.Message != want || len(e.Errors) != 1 {
		t.Errorf("got %d %+v, want code 400 with %s", code, e, want)
	}
	last := b.Store.Revisions()[0]
	if last.Who != "root" || last.Doing != "undo of revision 1, which the kernel refused" || last.Deleted != 1 || b.Store.Routes.Len(b.Store.Snapshot()) != 0 {
		t.Errorf(`got %+v, want last.Who == "root", last.Doing == "undo of revision 1, `+
			`which the kernel refused", last.Deleted == 1, b.Store.Routes.Len(b.Store.Snapshot()) == 0`,
			last)
	}
}

// TestRollbackKeepsRoles checks that a rollback does not restore which node is the master.
func TestRollbackKeepsRoles(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	b.Apply(`{"objects":[` + apitest.Object(1, "", "10.0.0.1") + `]}`)
	if w := b.Call("POST", httpapi.BaseURL+"/config/cistate", `{"instance":"default","state":"BACKUP"}`); w.Code != 200 {
		t.Fatalf("got %v, want code 200", w.Body)
	}
	if w := b.Call("POST", httpapi.BaseURL+"/config/rollback", `{"revision":0,"managed":true}`); w.Code != 200 || len(b.List()) != 0 {
		t.Errorf("got %d %s, want code 200, no services", w.Code, w.Body)
	}
	if got := b.Call("GET", httpapi.BaseURL+"/config/cistate/all", "").Body.String(); !strings.Contains(got, "BACKUP") {
		t.Errorf(`got %v, want "BACKUP" in got`, got)
	}
}

package users_test

import (
	"strconv"
	"strings"
	"testing"

	"loxilb/internal/api/httpapi"
	"loxilb/internal/api/httpapi/observation"
	"loxilb/internal/api/httpapi/transport"
	"loxilb/internal/api/httpapi/users"
	"loxilb/test/apitest"
)

const nobody = 65534

// TestLoopbackUsers checks which local users may use the API over loopback.
func TestLoopbackUsers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		users users.Loopback
		uid   uint32
		code  int
	}{
		"root":              {users.Loopback{}, 0, 200},
		"nobody":            {users.Loopback{}, nobody, 403},
		"no such account":   {users.Loopback{}, 987654, 403},
		"a user":            {users.Loopback{UIDs: []uint32{7, nobody}}, nobody, 200},
		"another user":      {users.Loopback{UIDs: []uint32{7}}, nobody, 403},
		"a group":           {users.Loopback{GIDs: []uint32{nobody}}, nobody, 200},
		"another group":     {users.Loopback{GIDs: []uint32{7}}, nobody, 403},
		"group, no account": {users.Loopback{GIDs: []uint32{nobody}}, 987654, 403},
		"everyone":          {users.Loopback{Everyone: true}, nobody, 200},
	} {
		b := apitest.New(t, func(o *httpapi.Options) { o.Users = tc.users })
		b.Peer = func() (uint32, error) { return tc.uid, nil }
		w := b.Call("GET", httpapi.BaseURL+"/version", "")
		if w.Code != tc.code {
			t.Errorf("%s: got %d %s, want code %d", name, w.Code, w.Body, tc.code)
		}
		if w.Code == 403 {
			if e := apitest.ProblemOf(t, w); !strings.Contains(e.Message, strconv.Itoa(int(tc.uid))) || !strings.Contains(e.Message, "--api-users=") {
				t.Errorf("%s: the refusal is %q, want the user's id %d and --api-users", name, e.Message, tc.uid)
			}
		}
	}
	b := apitest.New(t, nil)
	b.Peer = func() (uint32, error) { return 0, transport.ErrNoPeer }
	if w := b.Call("GET", httpapi.BaseURL+"/version", ""); w.Code != 403 {
		t.Errorf("a client whose user is unknown gets %d %s, want code 403", w.Code, w.Body)
	}
	b = apitest.New(t, func(o *httpapi.Options) { o.Token = "s3cret" })
	b.Peer = func() (uint32, error) { return nobody, nil }
	if w := b.Call("GET", httpapi.BaseURL+"/version", "", "Authorization", "s3cret"); w.Code != 200 {
		t.Errorf("a client with the token gets %d %s, want code 200", w.Code, w.Body)
	}
}

// TestHealth checks that health checks need no token.
func TestHealth(t *testing.T) {
	t.Parallel()
	how, ready := "starting: 1 of 3 services applied", false
	b := apitest.New(t, func(o *httpapi.Options) {
		o.Token = "s3cret"
		o.Ready = func() (bool, string) { return ready, how }
	})
	b.Peer = func() (uint32, error) { return nobody, nil }
	want := func(path string, code int, body string) {
		t.Helper()
		if w := b.Call("GET", path, "", "Host", "lb.example"); w.Code != code || w.Body.String() != body+"\n" {
			t.Errorf("%s: got %d %s, want %d %s", path, w.Code, w.Body, code, body)
		}
	}
	want(observation.HealthPath, 200, "ok")
	want(observation.ReadyPath, 503, how)
	ready = true
	want(observation.ReadyPath, 200, "ready")
}

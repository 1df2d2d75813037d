package traffic_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/cli/session"
	"loxilb/test/clitest"
)

func TestConntrackFilters(t *testing.T) {
	t.Parallel()
	s := clitest.NewServer(t, 200, `{"ctAttr":[],"lbAttr":[{"serviceArguments":{"externalIP":"20.20.20.1","port":80,"protocol":"tcp","name":"web"},"endpoints":[]}]}`)
	for _, args := range []string{
		"get ct --servName=web --vip=20.20.20.1 --proto=tcp --limit=5",
		"get ct --service=20.20.20.1:80/tcp --state=est --source=10.0.0.0/8 --endpoint=[::1]:80 --offset=7",
	} {
		_ = clitest.Run(t, "", s.Args(args)...) // the response does not matter
	}
	s.Requests = slices.DeleteFunc(s.Requests, func(r string) bool { return strings.Contains(r, "/loadbalancer/") })
	want := []string{
		"GET /netlox/v1/config/conntrack/all?limit=5&offset=0&protocol=tcp&servName=web&vip=20.20.20.1",
		"GET /netlox/v1/config/conntrack/all?endpoint=%5B%3A%3A1%5D%3A80&offset=7&service=20.20.20.1%3A80%2Ftcp&source=10.0.0.0%2F8&state=est",
	}
	for i, r := range s.Requests {
		// the order of parameters does not matter
		path, query, _ := strings.Cut(r, "?")
		parts := strings.Split(query, "&")
		slices.Sort(parts)
		s.Requests[i] = path + "?" + strings.Join(parts, "&")
	}
	if diff := cmp.Diff(want, s.Requests); diff != "" {
		t.Errorf("the requests differ (-want +got):\n%s", diff)
	}
}

// TestConnectionsOfNoService checks that the name or key of a missing service is an error, unless
// connections still have it.
func TestConnectionsOfNoService(t *testing.T) {
	t.Parallel()
	gone := clitest.NewServer(t, 200, `{"ctAttr":[],"lbAttr":[]}`)
	for _, args := range []string{
		"get ct --servName=nosuch", "get ct --service=nosuch", "get ct --service=20.20.20.9:80/tcp", "get ct --servName=nosuch -o json",
		"get ct -w --servName=nosuch",
	} {
		if r := clitest.Run(t, "", gone.Args(args)...); r.Code != session.ExitRefused || r.Stdout != "" || !strings.Contains(r.Stderr, "\" not found") {
			t.Errorf(`%s: got %+v, want code %d, nothing on stdout, "\" not found" on stderr`, args, r, session.ExitRefused)
		}
	}
	last := clitest.NewServer(t, 200, `{"lbAttr":[],"ctAttr":[`+fmt.Sprintf(connection, 1)+`]}`)
	idle := clitest.NewServer(t, 200,
		`{"lbAttr":[{"serviceArguments":{"externalIP":"20.20.20.1","port":80,"protocol":"tcp","name":"web"},"endpoints":[],"status":{"key":"20.20.20.1:80/tcp"}}],"ctAttr":[]}`)
	for _, s := range []*clitest.Server{last, idle} {
		for _, args := range []string{"get ct --servName=web", "get ct --service=20.20.20.1:80/tcp"} {
			if r := clitest.Run(t, "", s.Args(args)...); r.Code != session.ExitOK {
				t.Errorf("%s: got %+v, want code %d", args, r, session.ExitOK)
			}
		}
	}
}

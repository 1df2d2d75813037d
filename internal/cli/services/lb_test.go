package services_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/cli/session"
	"loxilb/test/clitest"
)

// TestGetLB prints testdata/lb.json and empty.json and compares with *.txt next to it, which has
// the command lines.
func TestGetLB(t *testing.T) {
	t.Parallel()
	clitest.Golden(t, clitest.NewServer(t, 200, clitest.Answer(t, "lb")), "lb",
		"get lb", "get lb -o wide", "get loadbalancers --servName=web", "get lbs --servName=dns -o json", "get lb -o yaml --servName=dns", "get loadbalancer --servName=none")
	clitest.Golden(t, clitest.NewServer(t, 200, clitest.Answer(t, "empty")), "empty", "get lb", "get lb -o wide", "get lb -o json", "get lb -o yaml")
}

// TestDescribe prints testdata/describe.json and compares with describe.txt.
func TestDescribe(t *testing.T) {
	t.Parallel()
	services := clitest.Answer(t, "describe")
	var events bytes.Buffer
	events.WriteString(`{"eventAttr":[`)
	for i := range 12 {
		fmt.Fprintf(&events, `{"seq":%d,"time":"2020-01-02T03:04:05Z","kind":"object","object":"service 20.20.20.1:2020/tcp","message":"service 20.20.20.1:2020/tcp failed %d"},`, i, i)
	}
	events.WriteString(`{"seq":99,"time":"2020-01-02T03:04:05Z","kind":"object","object":"service [2001:db8::9]:53-54/udp/mark=7","message":"applied"}]}`)
	var asked []string
	s := &clitest.Server{Server: httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/netlox/v1/events" {
			asked = append(asked, r.URL.Query().Get("object"))
			_, _ = w.Write(events.Bytes())
			return
		}
		if r.URL.Path == "/netlox/v1/status/objects" {
			_, _ = io.WriteString(w, `{"statusAttr":[
				{"kind":"endpoint","key":"31.31.31.1","state":"failed","since":"2020-01-02T03:04:05Z","error":"there is no route to endpoint 31.31.31.1 (add one)"},
				{"kind":"endpoint","key":"10.9.9.9","state":"failed","error":"another service's"},
				{"kind":"vip","key":"2001:db8::9","state":"failed","error":"VIP 2001:db8::9 cannot be added"}]}`)
			return
		}
		_, _ = io.WriteString(w, services)
	}))}
	t.Cleanup(s.Close)
	clitest.Golden(t, s, "describe",
		"describe lb", "describe lb web", "describe lb [2001:db8::9]:53-54/udp/mark=7", "describe lb 10.0.0.1:0/icmp", "describe lb web -o yaml")
	if diff := cmp.Diff([]string{"", "service 20.20.20.1:2020/tcp", "service [2001:db8::9]:53-54/udp/mark=7"}, asked); diff != "" {
		t.Errorf("the queries differ (-want +got):\n%s", diff) // one request for any number of services, and none to a server without status
	}
	if r := clitest.Run(t, "", s.Args("describe lb none")...); r.Code != session.ExitRefused || !strings.Contains(r.Stderr, `service "none" not found`) || r.Stdout != "" {
		t.Errorf("got %+v, want code %d, `service \"none\" not found` on stderr, nothing on stdout", r, session.ExitRefused)
	}
}

// TestCreateLeniently checks that meaningless input is ignored, as by the existing loxicmd: an
// extra comma, a repeated endpoint, an empty mode.
func TestCreateLeniently(t *testing.T) {
	t.Parallel()
	s := clitest.NewServer(t, 200, clitest.Success)
	got := clitest.Run(t, "", s.Args("create lb 1.1.1.1 --tcp=1:1 --mode= --select= --endpoints=2.2.2.2:1,3.3.3.3:1,2.2.2.2:1,")...)
	if want := (clitest.Result{Stdout: "success\n", Stderr: "Warning: endpoint 2.2.2.2 weight 1 is given twice\n"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if n := strings.Count(s.Requests[0], "endpointIP"); n != 2 {
		t.Errorf("%d endpoints: %s", n, s.Requests[0])
	}
	if got := clitest.Run(t, "", s.Args("create lb 1.1.1.1 --tcp=1:1 --endpoints=")...); got.Code == session.ExitOK {
		t.Errorf("no endpoints: %+v", got)
	}
}

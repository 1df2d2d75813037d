package services_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	v1 "loxilb/api/v1"
	"loxilb/test/clitest"
)

// TestNameWithComma checks that a name with a comma is one name in every flag.
func TestNameWithComma(t *testing.T) {
	t.Parallel()
	s := clitest.NewServer(t, 200, `{"lbAttr":[{"serviceArguments":{"externalIP":"20.20.20.1","port":80,"protocol":"tcp","name":"a,b"},"endpoints":[],"status":{"key":"20.20.20.1:80/tcp","state":"applied"}},
		{"serviceArguments":{"externalIP":"20.20.20.2","port":80,"protocol":"tcp","name":"a"},"endpoints":[],"status":{"key":"20.20.20.2:80/tcp","state":"applied"}}]}`)
	for args, asked := range map[string]string{
		"get lb a,b -o name":            "name=%22a%2Cb%22",
		"get lb --servName=a,b -o name": "selector=serviceArguments.name+in+%28%22a%2Cb%22%29",
		`get lb -l name="a,b" -o name`:  "selector=serviceArguments.name+in+%28%22a%2Cb%22%29",
	} {
		got := clitest.Run(t, "", s.Args(args)...)
		if last := s.Requests[len(s.Requests)-1]; got.Stdout != "lb/20.20.20.1:80/tcp\n" || !strings.HasSuffix(last, "?"+asked) {
			t.Errorf("%s: got %+v after the request %s, want the request to end with ?%s", args, got, last, asked)
		}
	}
}

// TestNamedByAddress checks that services are found by their VIPs, and endpoints by their
// addresses, with a port or without.
func TestNamedByAddress(t *testing.T) {
	t.Parallel()
	services := clitest.NewServer(t, 200, `{"lbAttr":[{"serviceArguments":{"externalIP":"20.20.20.1","port":80,"protocol":"tcp"},"endpoints":[],"secondaryIPs":[{"secondaryIP":"20.20.30.1"}]},
		{"serviceArguments":{"externalIP":"20.20.20.1","port":53,"protocol":"udp"},"endpoints":[]},
		{"serviceArguments":{"externalIP":"2001:db8::1","port":80,"protocol":"tcp"},"endpoints":[]}]}`)
	endpoints := clitest.NewServer(t, 200, `{"Attr":[{"hostName":"31.31.31.1","name":"a","probePort":80},{"hostName":"31.31.31.1","name":"b","probePort":81}]}`)
	for args, want := range map[string]string{
		"get lb 20.20.20.1":       "lb/20.20.20.1:80/tcp lb/20.20.20.1:53/udp",
		"get lb 20.20.20.1:53":    "lb/20.20.20.1:53/udp",
		"get lb 20.20.30.1":       "lb/20.20.20.1:80/tcp",
		"get lb 20.20.30.1:80":    "lb/20.20.20.1:80/tcp",
		"get lb [2001:db8::1]:80": "lb/[2001:db8::1]:80/tcp",
		"get lb 2001:db8::1":      "lb/[2001:db8::1]:80/tcp",
		"get lb 20.20.20.1:81":    "",
		"get ep 31.31.31.1":       "endpoint/a endpoint/b",
		"get ep 31.31.31.1:81":    "endpoint/b",
		"get ep 31.31.31.1:82":    "",
	} {
		s := services
		if strings.Contains(args, " ep ") {
			s = endpoints
		}
		if got := clitest.Run(t, "", s.Args(args+" -o name")...); strings.Join(strings.Fields(got.Stdout), " ") != want {
			t.Errorf("%s: got %+v, want %q", args, got, want)
		}
	}
}

// TestRatesOfEndpoint checks that describe endpoint shows the endpoint's rates in each service, and
// no rates of other endpoints.
func TestRatesOfEndpoint(t *testing.T) {
	t.Parallel()
	s := &clitest.Server{Server: httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any = struct{}{}
		switch {
		case strings.HasSuffix(r.URL.Path, "/config/endpoint/all"):
			answer = v1.EndpointProbeList{Attr: []v1.EndpointProbe{{
				Name: "31.31.31.1_tcp_80", HostName: "31.31.31.1", CurrState: "ok",
				Services: []string{"20.20.20.1:80/tcp", "20.20.20.2:80/tcp"},
			}}}
		case strings.HasSuffix(r.URL.Path, "/status/rates/services"):
			answer = v1.ServiceRatesList{Seconds: 5, Services: []v1.ServiceRates{{Service: r.URL.Query().Get("service"), Endpoints: []v1.EndpointRates{
				{Endpoint: "31.31.31.1:80", Active: 7, Rates: v1.Rates{Connections: 12}}, {Endpoint: "31.31.31.9:80", Active: 8},
			}}}}
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))}
	t.Cleanup(s.Close)
	got := clitest.Run(t, "", s.Args("describe endpoint 31.31.31.1")...)
	text := strings.Join(strings.Fields(got.Stdout), " ")
	if !strings.Contains(text, "Rates over the last 5 s:") || !strings.Contains(text, "20.20.20.1:80/tcp > 31.31.31.1:80 | 7 | 12 |") ||
		!strings.Contains(text, "20.20.20.2:80/tcp > 31.31.31.1:80 | 7 | 12 |") || strings.Contains(text, "31.31.31.9") {
		t.Errorf(`got %+v, want "Rates over the last 5 s:" in text, "20.20.20.1:80/tcp > 31.31.31.1:80 | 7 | 12 |" in text, `+
			`"20.20.20.2:80/tcp > 31.31.31.1:80 | 7 | 12 |" in text, no "31.31.31.9" in text`,
			got)
	}
}

// TestSinceOfDrain checks that get and describe do not show the time of a probe's result as the
// start of a drain, or of a failure that another check has found.
func TestSinceOfDrain(t *testing.T) {
	t.Parallel()
	s := clitest.NewServer(t, 200,
		`{"Attr":[{"hostName":"31.31.31.1","name":"31.31.31.1_tcp_80","probeType":"tcp","probePort":80,"currState":"ok","observedState":"drained",`+
			`"since":"2020-01-02T03:04:05Z"}]}`)
	for _, args := range []string{"get endpoint", "describe endpoint 31.31.31.1"} {
		if got := clitest.Run(t, "", s.Args(args)...); got.Code != 0 || strings.Contains(got.Stdout, "2020-01-02") || !strings.Contains(got.Stdout, "drained") {
			t.Errorf(`%s: got %+v, want exit code 0, no "2020-01-02" on stdout, "drained" on stdout`,
				args, got)
		}
	}
	s.Body = `{"Attr":[{"hostName":"31.31.31.1","name":"31.31.31.1_tcp_80","probeType":"tcp","probePort":80,"currState":"ok","observedState":"down",` +
		`"evidence":"tcp 31.31.31.1:80: accepts connections, 2 of 2","since":"2020-01-02T03:04:05Z"}]}`
	for _, args := range []string{"get endpoint", "describe endpoint 31.31.31.1"} {
		if got := clitest.Run(t, "", s.Args(args)...); got.Code != 0 || strings.Contains(got.Stdout, "2020-01-02") ||
			!strings.Contains(got.Stdout, "accepts connections, 2 of 2; another check has found it down") {
			t.Errorf(`%s: got %+v, want exit code 0, no "2020-01-02" on stdout, and that another check has found the endpoint down`, args, got)
		}
	}
	s.Body = `{"drainAttr":[{"endpoint":"31.31.31.1:80","connections":3,"sockets":0,"rate":200}]}`
	if got := clitest.Run(t, "", s.Args("get drain")...); !strings.Contains(got.Stdout, "| 200/s |") {
		t.Errorf("the rate of a drain has no unit: %+v", got)
	}
}

package services_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi"
	"loxilb/internal/api/httpapi/services"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
	"loxilb/test/apitest"
)

func TestList(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	if got, want := b.Call("GET", httpapi.BaseURL+"/config/loadbalancer/all", "").Body.String(), "{\"lbAttr\":[\n]}\n"; got != want {
		t.Errorf("nothing: %q", got)
	}
	b.MustPost(strings.Replace(apitest.Demo, `"protocol"`, `"name":"web","inactiveTimeOut":60,"sel":"priority","protocol"`, 1))
	b.Fake.Stats[apitest.DemoKey()] = report.ServiceStats{Endpoints: []report.EndpointStats{
		{In: report.Traffic{Packets: 3, Bytes: 180}, Out: report.Traffic{Packets: 2, Bytes: 120}},
	}}
	w := b.Call("GET", httpapi.BaseURL+"/config/loadbalancer/all", "")
	want := `{"lbAttr":[{
		"endpoints":[
			{"counter":"5:300","endpointIP":"31.31.31.1","observedState":"unprobed","targetPort":5001,"weight":1},
			{"counter":"0:0","endpointIP":"32.32.32.1","observedState":"unprobed","targetPort":5001,"weight":1}],
		"observedState":"pending",
		"serviceArguments":{"bgp":false,"block":0,"egress":false,"externalIP":"20.20.20.1","inactiveTimeOut":60,"managed":false,
			"mode":0,"monitor":false,"name":"web","port":2020,"protocol":"tcp","proxyprotocolv2":false,"security":0,"sel":2},
		"status":{"kind":"service","key":"20.20.20.1:2020/tcp","state":"pending","desired":1,"applied":0}}]}`
	if diff := cmp.Diff(apitest.Normal(t, want), apitest.Normal(t, w.Body.String())); diff != "" {
		t.Errorf("the answer differs (-want +got):\n%s", diff)
	}
	if ct := w.Header().Get("Content-Type"); ct != "application/json" {
		t.Errorf("Content-Type %q", ct)
	}
}

func TestConntrack(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	b.Fake.Conns = apitest.Connections()
	const first = `{"destinationIP":"20.20.20.1","destinationPort":2020,"sourceIP":"100.100.100.1","sourcePort":40000,"protocol":"tcp",
		"ident":"","conntrackState":"est","conntrackAct":"dnat-31.31.31.1:5001:w1","packets":4,"bytes":400,"servName":"web"}`
	const second = `{"destinationIP":"100.100.100.1","destinationPort":40000,"sourceIP":"31.31.31.1","sourcePort":5001,"protocol":"tcp",
		"ident":"","conntrackState":"est","conntrackAct":"snat-20.20.20.1:2020:w1","packets":3,"bytes":300,"servName":"web"}`
	const third = `{"destinationIP":"2001:db8::1","destinationPort":53,"sourceIP":"2001:db8::64","sourcePort":5353,"protocol":"udp",
		"ident":"","conntrackState":"udp-uni","conntrackAct":"dnat-[2001:db8:1::1]:53:w5","packets":1,"bytes":64,"servName":"[2001:db8::1]:53/udp"}`
	for query, want := range map[string]string{
		"":                                        first + "," + second + "," + third,
		"?service=web":                            first + "," + second,
		"?selector=packets+in+(1,3)":              second + "," + third,
		"?selector=servName!=web&state=udp-uni":   third,
		"?sortBy=-sourcePort&limit=2":             first + "," + third,
		"?sortBy=bytes&limit=3":                   third + "," + second + "," + first,
		"?continue=2":                             third,
		"?continue=1&limit=2":                     second + "," + third,
		"?continue=9999":                          "",
		"?limit=0&protocol=udp":                   third,
		"?protocol=tcp":                           first + "," + second,
		"?vip=20.20.20.1":                         first + "," + second,
		"?vip=2001:db8::1":                        third,
		"?vip=31.31.31.1":                         "",
		"?servName=other":                         "",
		"?vip=20.20.20.1&protocol=udp":            "",
		"?state=est":                              first + "," + second,
		"?state=fini":                             "",
		"?source=100.100.100.1":                   first + "," + second,
		"?source=2001:db8::/64":                   third,
		"?source=31.31.31.1":                      "", // it is up
		"?endpoint=31.31.31.1":                    first + "," + second,
		"?endpoint=31.31.31.1:5001":               first + "," + second,
		"?endpoint=31.31.31.1:5002":               "",
		"?endpoint=::ffff:31.31.31.1":             first + "," + second,
		"?endpoint=[::ffff:31.31.31.1]:5001":      first + "," + second,
		"?source=::ffff:100.100.100.1":            first + "," + second,
		"?source=::ffff:100.0.0.0/104":            first + "," + second,
		"?state=ESTABLISHED":                      first + "," + second,
		"?state=udp-uni":                          third,
		"?endpoint=2001:db8:1::1":                 third,
		"?endpoint=[2001:db8:1::1]:53":            third,
		"?service=20.20.20.1:2020/tcp":            first + "," + second,
		"?service=20.20.20.1:2020/udp":            "",
		"?service=20.20.20.1:2000-2020/tcp":       first + "," + second,
		"?service=20.20.20.1:2021/tcp":            "",
		"?service=[2001:db8::1]:53/udp":           third,
		"?service=0.0.0.0:2020/tcp":               first + "," + second,
		"?offset=1":                               second + "," + third,
		"?offset=3":                               "",
		"?protocol=tcp&offset=1&source=0.0.0.0/0": second,
	} {
		w := b.Call("GET", httpapi.BaseURL+"/config/conntrack/all"+query, "")
		if diff := cmp.Diff(apitest.Normal(t, `{"ctAttr":[`+want+`]}`), apitest.Normal(t, w.Body.String())); diff != "" {
			t.Errorf("%q: %s", query, diff)
		}
	}
	for query, field := range map[string]string{
		"?limit=-1": "limit", "?limit=x": "limit", "?protocol=quic": "protocol", "?vip=x": "vip", "?offset=-1": "offset",
		"?source=10.0.0.0/33": "source", "?source=me": "source", "?endpoint=1.2.3": "endpoint", "?endpoint=::1:x": "endpoint",
		"?endpoint=fe80::1%25eth0": "endpoint", "?state=open": "state", "?service=web/tcp": "service",
		"?continue=x": "continue", "?continue=-1": "continue", "?sortBy=bytes": "limit", "?sortBy=bytes&limit=10001": "limit",
	} {
		w := b.Call("GET", httpapi.BaseURL+"/config/conntrack/all"+query, "")
		if e := apitest.ProblemOf(t, w); w.Code != 400 || e.Field != field {
			t.Errorf("%q: got %d %+v, want code 400 about %s", query, w.Code, e, field)
		}
	}
}

// TestConntrackPages checks that a page of connections names the start of the next one, and that
// the last page does not.
func TestConntrackPages(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	b.Fake.Conns = apitest.Connections()
	var ports []uint16
	next := ""
	for range 9 {
		var page v1.ConntrackList
		if err := json.Unmarshal(b.Call("GET", httpapi.BaseURL+"/config/conntrack/all?limit=1&continue="+next, "").Body.Bytes(), &page); err != nil || len(page.CtAttr) != 1 {
			t.Fatalf("got %v %+v, want no error, 1 element in page.CtAttr", err, page)
		}
		ports = append(ports, page.CtAttr[0].SourcePort)
		if next = page.Continue; next == "" {
			break
		}
	}
	if diff := cmp.Diff([]uint16{40000, 5001, 5353}, ports); diff != "" {
		t.Errorf("the ports differ (-want +got):\n%s", diff)
	}
}

// TestPages checks that services, endpoints and statuses can be filtered, sorted and paged.
func TestPages(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	b.Fake.Health = []*report.EndpointHealth{health(report.HealthDown, "31.31.31.1"), health(report.HealthUp, "32.32.32.1")}
	for i, name := range []string{"web", "a,b", "web", "10", ""} {
		b.MustPost(strings.NewReplacer("20.20.20.1", "20.20.20."+strconv.Itoa(9+i), `"protocol"`,
			`"name":"`+name+`","mode":`+strconv.Itoa(i%2*2)+`,"protocol"`, "31.31.31.1", "31.31.31."+strconv.Itoa(i+1),
			`"endpoints"`, `"secondaryIPs":[{"secondaryIP":"20.20.99.`+strconv.Itoa(i+1)+`"}],"endpoints"`).Replace(apitest.Demo))
	}
	key := func(i int) string { return "20.20.20." + strconv.Itoa(i) }
	for query, want := range map[string][]string{
		"config/loadbalancer/all?name=web":                                       {key(9), key(11)},
		"config/loadbalancer/all?name=20.20.20.10:2020/tcp,web":                  {key(9), key(10), key(11)},
		`config/loadbalancer/all?name="a,b",10`:                                  {key(10), key(12)},
		"config/loadbalancer/all?name=a,b":                                       nil,
		`config/loadbalancer/all?selector=name="a,b"`:                            {key(10)},
		"config/loadbalancer/all?name=nope":                                      nil,
		"config/loadbalancer/all?name=20.20.20.10":                               {key(10)},
		"config/loadbalancer/all?name=20.20.20.10:2020,20.20.20.11:99":           {key(10)},
		"config/loadbalancer/all?name=20.20.99.1":                                {key(9)}, // a further VIP
		"config/loadbalancer/all?selector=mode=fullnat":                          {key(10), key(12)},
		"config/loadbalancer/all?selector=mode=fullnat,!name":                    nil,
		"config/loadbalancer/all?selector=!name":                                 {key(13)},
		"config/loadbalancer/all?selector=endpointIP=31.31.31.4":                 {key(12)},
		"config/loadbalancer/all?selector=vip^=20.20.20.1,status.state=pending":  {key(10), key(11), key(12), key(13)},
		"config/loadbalancer/all?sortBy=-name&limit=3":                           {key(9), key(11), key(10)},
		"config/loadbalancer/all?sortBy=weight":                                  {key(9), key(10), key(11), key(12), key(13)},
		"config/endpoint/all?name=31.31.31.1":                                    {"31.31.31.1"},
		"config/endpoint/all?name=31.31.31.1:5001,32.32.32.1:99":                 {"31.31.31.1"},
		"config/endpoint/all?selector=state=ok":                                  {"32.32.32.1"},
		"config/endpoint/all?selector=services=20.20.20.1:2020/tcp&sortBy=-name": {"32.32.32.1", "31.31.31.1"},
		"config/endpoint/all?limit=1":                                            {"31.31.31.1"},
	} {
		if diff := cmp.Diff(want, b.Addresses(t, query)); diff != "" {
			t.Errorf("%s: %s", query, diff)
		}
	}
	for _, sort := range []string{"", "name", "-name", "mode"} {
		var got []string
		for next, pages := "", 0; pages == 0 || next != "" && pages < 9; pages++ {
			var page v1.LoadbalanceList
			if err := json.Unmarshal(b.Call("GET", httpapi.BaseURL+"/config/loadbalancer/all?limit=2&sortBy="+sort+"&continue="+next, "").Body.Bytes(), &page); err != nil {
				t.Fatal(err)
			}
			for _, e := range page.LbAttr {
				got = append(got, e.ServiceArguments.ExternalIP)
			}
			next = page.Continue
			if pages == 0 {
				b.Call("DELETE", httpapi.BaseURL+"/config/loadbalancer/externalipaddress/"+got[1]+"/port/2020/protocol/tcp", "") // the last one of the page
				defer b.MustPost(strings.Replace(apitest.Demo, "20.20.20.1", got[1], 1))
			}
		}
		if len(got) < 2 || len(slices.Compact(slices.Sorted(slices.Values(got)))) != len(got) {
			t.Errorf("sorted by %q: %q", sort, got)
		}
	}
	for query, says := range map[string]string{
		"config/loadbalancer/all?selector=nope=1": `selector: field "nope" is not known`, "config/loadbalancer/all?selector=a+b": "is not valid (allowed: FIELD=VALUE",
		"config/loadbalancer/all?sortBy=nope": `sortBy: field "nope"`, "config/loadbalancer/all?limit=-1": "limit", "config/loadbalancer/all?continue=x": "is not the end of a page",
		"config/endpoint/all?continue=x": "is not the end of a page", "status/objects?selector=x": `selector: field "x"`,
	} {
		if w := b.Call("GET", httpapi.BaseURL+"/"+query, ""); w.Code != 400 || !strings.Contains(w.Body.String(), strings.ReplaceAll(says, `"`, `\"`)) {
			t.Errorf("%s: got %d %s, want code 400 with %q", query, w.Code, w.Body, says)
		}
	}
}

// TestPlainValues checks that values read from a stored service equal those in its response.
func TestPlainValues(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	b.MustPost(strings.Replace(apitest.Demo, `"protocol"`,
		`"name":"web","mode":"fullnat","sel":"lc","inactiveTimeOut":60,"refuse":"drop","mss":1200,"maxRate":7,"monitor":true,"probetype":"http",`+
			`"probeInterval":"500ms","slowStart":"30s","block":9,"protocol"`,
		1))
	a := b.API
	now := b.Store.Snapshot()
	for s := range b.Store.Services.All(now) {
		e := a.Entry(now, &s)
		paths := slices.Collect(maps.Keys(services.PlainFields()))
		for _, f := range lb.EndpointFields() {
			paths = append(paths, "endpoints."+f.Property)
		}
		for _, path := range paths {
			got, _ := services.PlainValue(&s, path)
			want := services.ServiceFields().Values(e, path)
			nothing := func(v string) bool { return v == "" || v == "0" || v == "false" }
			if !slices.Equal(slices.DeleteFunc(got, nothing), slices.DeleteFunc(want, nothing)) {
				t.Errorf("%s: %q, and the answer has %q", path, got, want)
			}
		}
	}
}

func TestConntrackFails(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	b.Fake.ConnErr = apitest.ErrDataPath
	w := b.Call("GET", httpapi.BaseURL+"/config/conntrack/all", "")
	if e := apitest.ProblemOf(t, w); w.Code != 503 || !strings.Contains(e.Message, apitest.ErrDataPath.Error()) {
		t.Errorf("got %d %+v, want code 503, the data path's error in the message", w.Code, e)
	}
	// After the first byte was sent, a failing response must not look complete.
	b.Fake.Conns = apitest.Connections()
	w = b.Call("GET", httpapi.BaseURL+"/config/conntrack/all", "")
	if json.Valid(w.Body.Bytes()) {
		t.Errorf("an answer that broke off is JSON: %s", w.Body)
	}
}

func TestVersionAndMetrics(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	for path, want := range map[string]string{
		httpapi.BaseURL + "/version": "{\"buildInfo\":\"test\",\"version\":\"1.2.3\"}\n",
		httpapi.BaseURL + "/metrics": "metrics\n",
		"/metrics":                   "metrics\n",
	} {
		if w := b.Call("GET", path, ""); w.Code != 200 || w.Body.String() != want {
			t.Errorf("GET %s: %d %q", path, w.Code, w.Body)
		}
	}
}

// TestFewEndpoints checks that a request for a few endpoints does not compute the states of all.
func TestFewEndpoints(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	b.MustPost(apitest.Demo)
	var others []string
	for i := range 100 {
		at := "31.31.40." + strconv.Itoa(i)
		b.Fake.Health = append(b.Fake.Health, health(report.HealthUp, at))
		others = append(others, at)
	}
	b.Fake.Health = append(b.Fake.Health, health(report.HealthDown, "31.31.31.1"), health(report.HealthUp, "32.32.32.1"))
	for query, want := range map[string]struct {
		found []string
		built int
	}{
		"name=31.31.31.1":                                {[]string{"31.31.31.1"}, 1},
		"name=31.31.31.1_tcp_5001,32.32.32.1":            {[]string{"31.31.31.1", "32.32.32.1"}, 2},
		"selector=services=20.20.20.1:2020/tcp":          {[]string{"31.31.31.1", "32.32.32.1"}, 2},
		"selector=services=20.20.20.1:2020/tcp,state=ok": {[]string{"32.32.32.1"}, 2},
		"selector=host^=31.31.31.":                       {[]string{"31.31.31.1"}, 1},
		"selector=name=32.32.32.1_tcp_5001":              {[]string{"32.32.32.1"}, 1},
		"selector=state=nok":                             {[]string{"31.31.31.1"}, len(others) + 2},
		"limit=2":                                        {others[:2], 3},
	} {
		b.Fake.Built = 0
		if diff := cmp.Diff(want.found, b.Addresses(t, "config/endpoint/all?"+query)); diff != "" || b.Fake.Built != want.built {
			t.Errorf("%s: %d were looked at, want %d; %s", query, b.Fake.Built, want.built, diff)
		}
	}
}

package httpapi

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/lb"
)

func TestList(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	if got, want := b.call("GET", BaseURL+"/config/loadbalancer/all", "").Body.String(), "{\"lbAttr\":[\n]}\n"; got != want {
		t.Errorf("nothing: %q", got)
	}
	b.mustPost(strings.Replace(demo, `"protocol"`, `"name":"web","inactiveTimeOut":60,"sel":"priority","protocol"`, 1))
	b.fake.stats[demoKey()] = lb.ServiceStats{Endpoints: []lb.EndpointStats{
		{In: lb.Traffic{Packets: 3, Bytes: 180}, Out: lb.Traffic{Packets: 2, Bytes: 120}},
	}}
	w := b.call("GET", BaseURL+"/config/loadbalancer/all", "")
	want := `{"lbAttr":[{
		"endpoints":[
			{"counter":"5:300","endpointIP":"31.31.31.1","targetPort":5001,"weight":1},
			{"counter":"0:0","endpointIP":"32.32.32.1","targetPort":5001,"weight":1}],
		"serviceArguments":{"bgp":false,"block":0,"egress":false,"externalIP":"20.20.20.1","inactiveTimeOut":60,"managed":false,
			"mode":0,"monitor":false,"name":"web","port":2020,"protocol":"tcp","proxyprotocolv2":false,"security":0,"sel":2},
		"status":{"kind":"service","key":"20.20.20.1:2020/tcp","state":"pending","desired":1,"applied":0}}]}`
	if diff := cmp.Diff(normal(t, want), normal(t, w.Body.String())); diff != "" {
		t.Error(diff)
	}
	if ct := w.Header().Get("Content-Type"); ct != "application/json" {
		t.Errorf("Content-Type %q", ct)
	}
}

func normal(t *testing.T, text string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

func connections() []lb.Connection {
	ap := netip.MustParseAddrPort
	return []lb.Connection{
		{
			Protocol: lb.TCP, Src: ap("100.100.100.1:40000"), Dst: ap("20.20.20.1:2020"),
			NewSrc: ap("100.100.100.1:40000"), NewDst: ap("31.31.31.1:5001"), Endpoint: ap("31.31.31.1:5001"),
			Weight: 1, State: "est", Traffic: lb.Traffic{Packets: 4, Bytes: 400}, Service: "web",
		},
		{
			Protocol: lb.TCP, Src: ap("31.31.31.1:5001"), Dst: ap("100.100.100.1:40000"), Reply: true,
			NewSrc: ap("20.20.20.1:2020"), NewDst: ap("100.100.100.1:40000"), Endpoint: ap("31.31.31.1:5001"),
			Weight: 1, State: "est", Traffic: lb.Traffic{Packets: 3, Bytes: 300}, Service: "web",
		},
		{
			Protocol: lb.UDP, Src: ap("[2001:db8::64]:5353"), Dst: ap("[2001:db8::1]:53"),
			NewSrc: ap("[2001:db8::64]:5353"), NewDst: ap("[2001:db8:1::1]:53"), Endpoint: ap("[2001:db8:1::1]:53"),
			Weight: 5, State: "udp-uni", Traffic: lb.Traffic{Packets: 1, Bytes: 64}, Service: "[2001:db8::1]:53/udp",
		},
	}
}

func TestConntrack(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.fake.connections = connections()
	const first = `{"destinationIP":"20.20.20.1","destinationPort":2020,"sourceIP":"100.100.100.1","sourcePort":40000,"protocol":"tcp",
		"ident":"","conntrackState":"est","conntrackAct":"dnat-31.31.31.1:5001:w1","packets":4,"bytes":400,"servName":"web"}`
	const second = `{"destinationIP":"100.100.100.1","destinationPort":40000,"sourceIP":"31.31.31.1","sourcePort":5001,"protocol":"tcp",
		"ident":"","conntrackState":"est","conntrackAct":"snat-20.20.20.1:2020:w1","packets":3,"bytes":300,"servName":"web"}`
	const third = `{"destinationIP":"2001:db8::1","destinationPort":53,"sourceIP":"2001:db8::64","sourcePort":5353,"protocol":"udp",
		"ident":"","conntrackState":"udp-uni","conntrackAct":"dnat-[2001:db8:1::1]:53:w5","packets":1,"bytes":64,"servName":"[2001:db8::1]:53/udp"}`
	for query, want := range map[string]string{
		"":                                        first + "," + second + "," + third,
		"?limit=1":                                first,
		"?limit=0&protocol=udp":                   third,
		"?protocol=tcp":                           first + "," + second,
		"?vip=20.20.20.1":                         first + "," + second,
		"?vip=2001:db8::1":                        third,
		"?vip=31.31.31.1":                         "",
		"?servName=web&limit=1":                   first,
		"?servName=other":                         "",
		"?vip=20.20.20.1&protocol=udp":            "",
		"?state=est":                              first + "," + second,
		"?state=fini":                             "",
		"?source=100.100.100.1":                   first + "," + second,
		"?source=2001:db8::/64":                   third,
		"?source=31.31.31.1":                      "", // it answers
		"?endpoint=31.31.31.1":                    first + "," + second,
		"?endpoint=31.31.31.1:5001":               first + "," + second,
		"?endpoint=31.31.31.1:5002":               "",
		"?endpoint=2001:db8:1::1":                 third,
		"?endpoint=[2001:db8:1::1]:53":            third,
		"?service=20.20.20.1:2020/tcp":            first + "," + second,
		"?service=20.20.20.1:2020/udp":            "",
		"?service=20.20.20.1:2000-2020/tcp":       first + "," + second,
		"?service=20.20.20.1:2021/tcp":            "",
		"?service=[2001:db8::1]:53/udp":           third,
		"?service=0.0.0.0:2020/tcp":               first + "," + second,
		"?offset=1":                               second + "," + third,
		"?offset=1&limit=1":                       second,
		"?offset=3":                               "",
		"?protocol=tcp&offset=1&source=0.0.0.0/0": second,
	} {
		w := b.call("GET", BaseURL+"/config/conntrack/all"+query, "")
		if diff := cmp.Diff(normal(t, `{"ctAttr":[`+want+`]}`), normal(t, w.Body.String())); diff != "" {
			t.Errorf("%q: %s", query, diff)
		}
	}
	for query, field := range map[string]string{
		"?limit=-1": "limit", "?limit=x": "limit", "?protocol=quic": "protocol", "?vip=x": "vip", "?offset=-1": "offset",
		"?source=10.0.0.0/33": "source", "?source=me": "source", "?endpoint=1.2.3": "endpoint", "?endpoint=::1:x": "endpoint", "?service=web": "service",
	} {
		w := b.call("GET", BaseURL+"/config/conntrack/all"+query, "")
		if e := problemOf(t, w); w.Code != 400 || e.Field != field {
			t.Errorf("%q: %d %+v", query, w.Code, e)
		}
	}
}

func TestConntrackFails(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.fake.connErr = errDataPath
	w := b.call("GET", BaseURL+"/config/conntrack/all", "")
	if e := problemOf(t, w); w.Code != 503 || !strings.Contains(e.Message, errDataPath.Error()) {
		t.Errorf("%d %+v", w.Code, e)
	}
	// Once something was sent, the answer must not look whole.
	b.fake.connections = connections()
	w = b.call("GET", BaseURL+"/config/conntrack/all", "")
	if json.Valid(w.Body.Bytes()) {
		t.Errorf("an answer that broke off is JSON: %s", w.Body)
	}
}

func TestVersionAndMetrics(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	for path, want := range map[string]string{
		BaseURL + "/version": "{\"buildInfo\":\"test\",\"version\":\"1.2.3\"}\n",
		BaseURL + "/metrics": "metrics\n",
		"/metrics":           "metrics\n",
	} {
		if w := b.call("GET", path, ""); w.Code != 200 || w.Body.String() != want {
			t.Errorf("GET %s: %d %q", path, w.Code, w.Body)
		}
	}
}

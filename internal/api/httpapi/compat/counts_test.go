package compat_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi"
	"loxilb/internal/api/httpapi/compat"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
	"loxilb/test/apitest"
)

// counted returns a bench with two services, one of them without a name.
func counted(t *testing.T) *apitest.Bench {
	t.Helper()
	b := apitest.New(t, nil)
	b.MustPost(apitest.Demo)
	b.MustPost(`{"serviceArguments":{"externalIP":"20.20.20.1","port":53,"protocol":"udp","name":"dns"},"endpoints":[{"endpointIP":"31.31.31.1","targetPort":53,"weight":1}]}`)
	web := report.ServiceStats{Endpoints: make([]report.EndpointStats, 2)}
	web.Refusals[report.NoEndpoint], web.Refusals[report.ConntrackFull] = 3, 4
	web.Connections, web.Active = 10, 2
	web.In, web.Out = report.Traffic{Packets: 20, Bytes: 200}, report.Traffic{Packets: 10, Bytes: 100}
	web.Endpoints[0].In.Bytes, web.Endpoints[1].Out.Bytes = 225, 75
	web.Endpoints[0].Active, web.Endpoints[0].Available, web.Endpoints[1].Available = 2, true, true
	var dns report.ServiceStats
	dns.Connections, dns.Active, dns.In = 5, 1, report.Traffic{Packets: 1, Bytes: 100}
	dns.Endpoints = []report.EndpointStats{{Active: 1, In: dns.In}}
	b.Fake.Stats[apitest.DemoKey()] = web
	b.Fake.Stats[lb.Key{VIP: netip.MustParseAddr("20.20.20.1"), Port: 53, Protocol: lb.UDP}] = dns
	b.Fake.Dropped = map[string]uint64{"source-denied": 7, "no-route": 9, "rule": 3}
	connection := func(client string, reply bool) report.Connection {
		c := report.Connection{
			Protocol: lb.TCP, Service: "web", Endpoint: netip.MustParseAddrPort("31.31.31.1:5001"), Traffic: report.Traffic{Packets: 2, Bytes: 50}, Reply: reply,
			Src: netip.MustParseAddrPort(client), NewDst: netip.MustParseAddrPort("31.31.31.1:5001"),
		}
		if reply {
			c.Src, c.NewDst = c.NewDst, c.Src
		}
		return c
	}
	b.Fake.Conns = []report.Connection{connection("10.0.0.1:1", false), connection("10.0.0.1:1", true), connection("10.0.0.1:2", false), connection("10.0.0.2:1", false)}
	b.Fake.Health = []*report.EndpointHealth{
		{State: report.HealthUp}, {State: report.HealthDown}, {},
	}
	return b
}

// TestCountsOfAll checks that services that are not applied yet are listed with zero counts.
func TestCountsOfAll(t *testing.T) {
	t.Parallel()
	b := counted(t)
	for _, vip := range []string{"10.0.0.1", "30.0.0.1"} {
		b.MustPost(`{"serviceArguments":{"externalIP":"` + vip + `","port":80,"protocol":"tcp"},"endpoints":[{"endpointIP":"31.31.31.1","targetPort":53,"weight":1}]}`)
	}
	const want = `[{"name":"10.0.0.1:80/tcp","value":0},{"name":"dns","value":5},{"name":"20.20.20.1:2020/tcp","value":10},{"name":"30.0.0.1:80/tcp","value":0}]`
	if w := b.Call("GET", httpapi.BaseURL+"/metrics/requestcount", ""); !strings.Contains(w.Body.String(), want) {
		t.Errorf("%s\nwant %s", w.Body, want)
	}
}

func TestCounts(t *testing.T) {
	t.Parallel()
	b := counted(t)
	for path, want := range map[string]string{
		"flowcount":        `{"active_conntrack_count":4,"active_flow_count_sctp":0,"active_flow_count_tcp":2,"active_flow_count_udp":1,"inactive_flow_count":1}`,
		"hostcount":        `{"healthy_host_count":1,"unhealthy_host_count":1}`,
		"lbrulecount":      `{"lb_rule_count":2}`,
		"newflowcount":     `{"new_flow_count":15}`,
		"requestcount":     `{"total_requests":15,"total_requests_per_service":[{"name":"dns","value":5},{"name":"20.20.20.1:2020/tcp","value":10}]}`,
		"errorcount":       `{"total_errors":7,"total_errors_per_service":[{"name":"dns","value":0},{"name":"20.20.20.1:2020/tcp","value":7}]}`,
		"processedtraffic": `{"processed_bytes":400,"processed_packets":31,"processed_sctp_bytes":0,"processed_tcp_bytes":300,"processed_udp_bytes":100}`,
		"lbprocessedtraffic": `{"lb_rule_interaction_bytes":[{"dip":"31.31.31.1","service":"web","sip":"10.0.0.1","value":150},{"dip":"31.31.31.1",` +
			`"service":"web","sip":"10.0.0.2","value":50}],` +
			`"lb_rule_interaction_packets":[{"dip":"31.31.31.1","service":"web","sip":"10.0.0.1","value":6},{"dip":"31.31.31.1","service":"web","sip":"10.0.0.2","value":2}]}`,
		"epdisttraffic": `{"20.20.20.1:2020/tcp":[{"dip":"31.31.31.1:5001","ratio":75,"value":225},{"dip":"32.32.32.1:5001","ratio":25,"value":75}],` +
			`"dns":[{"dip":"31.31.31.1:53","ratio":100,"value":100}]}`,
		"servicedisttraffic": `{"20.20.20.1:2020/tcp":{"ratio":75,"value":300},"dns":{"ratio":25,"value":100}}`,
		"fwdrops":            `{"total_fw_drops":10,"total_fw_drops_per_rule":[{"fw_rule":"source-not-allowed","value":0},{"fw_rule":"source-denied","value":7}]}`,
		"reqcountperclient":  `{"10.0.0.1":2,"10.0.0.2":1}`,
	} {
		w := b.Call("GET", httpapi.BaseURL+"/metrics/"+path, "")
		if diff := cmp.Diff(want, strings.TrimSpace(w.Body.String())); diff != "" || w.Code != 200 {
			t.Errorf("%s: got code %d, want 200; the answer differs (-want +got):\n%s", path, w.Code, diff)
		}
	}
}

// TestClientsBounded checks that clients' source addresses cannot make the daemon store a group for
// each of them.
func TestClientsBounded(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	for i := range compat.MaxGroups + 50 {
		a := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		b.Fake.Conns = append(b.Fake.Conns, report.Connection{Src: netip.AddrPortFrom(a, 1), Endpoint: netip.MustParseAddrPort("1.1.1.1:1"), Traffic: report.Traffic{Packets: 1}})
	}
	clients := apitest.GetAs[map[string]float64](b, "/metrics/reqcountperclient")
	if len(clients) != compat.MaxGroups+1 || clients[compat.OtherClients] != 50 {
		t.Errorf("%d clients, %v others", len(clients), clients[compat.OtherClients])
	}
	if got := apitest.GetAs[v1.Interactions](b, "/metrics/lbprocessedtraffic"); len(got.LbRuleInteractionBytes) != compat.MaxGroups+1 {
		t.Errorf("%d groups", len(got.LbRuleInteractionBytes))
	}
	b.Fake.ConnErr = apitest.ErrDataPath
	for _, path := range []string{"reqcountperclient", "lbprocessedtraffic"} {
		if w := b.Call("GET", httpapi.BaseURL+"/metrics/"+path, ""); w.Code != 503 {
			t.Errorf("%s: got %d, want 503", path, w.Code)
		}
	}
}

func TestMetricSwitch(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	for _, step := range []struct {
		method string
		on     bool
	}{{"DELETE", false}, {"DELETE", false}, {"POST", true}, {"POST", true}} {
		if w := b.Call(step.method, httpapi.BaseURL+"/config/metrics", ""); w.Code != 200 {
			t.Fatalf("got %v %v, want code 200", w.Code, w.Body)
		}
		if got := apitest.GetAs[v1.MetricsConfig](b, "/config/metrics").Prometheus; got != step.on {
			t.Errorf("%s: got %v, want %v", step.method, got, step.on)
		}
		want := map[bool]int{true: 200, false: 503}[step.on]
		for _, path := range []string{"/metrics", httpapi.BaseURL + "/metrics"} {
			if w := b.Call("GET", path, ""); w.Code != want {
				t.Errorf("got %s, %s: %d, want code %d", step.method, path, w.Code, want)
			}
		}
	}
}

func TestNodeGraph(t *testing.T) {
	t.Parallel()
	b := counted(t)
	g := apitest.GetAs[v1.NodeGraph](b, "/nodegraph/all")
	var nodes, edges []string
	for _, n := range g.Nodes {
		nodes = append(nodes, fmt.Sprint(n.Id, " ", n.Title, " ", n.Mainstat, " ", n.Secondarystat, " ", n.Color))
	}
	for _, e := range g.Edges {
		edges = append(edges, fmt.Sprint(e.Id, " ", e.Mainstat, " ", e.Color))
	}
	if diff := cmp.Diff([]string{
		"20.20.20.1:53/udp dns 1 100 gray", "31.31.31.1:53 31.31.31.1 1 100 gray",
		"20.20.20.1:2020/tcp 20.20.20.1:2020/tcp 2 300 green", "31.31.31.1:5001 31.31.31.1 2 225 green", "32.32.32.1:5001 32.32.32.1 0 75 green",
	}, nodes); diff != "" {
		t.Errorf("the nodes differ (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{
		"20.20.20.1:53/udp 31.31.31.1:53 1 gray", "20.20.20.1:2020/tcp 31.31.31.1:5001 2 green", "20.20.20.1:2020/tcp 32.32.32.1:5001 0 green",
	}, edges); diff != "" {
		t.Errorf("the edges differ (-want +got):\n%s", diff)
	}
	for _, service := range []string{"dns", "20.20.20.1:53%2Fudp"} {
		if g := apitest.GetAs[v1.NodeGraph](b, "/nodegraph/"+service); len(g.Nodes) != 2 || len(g.Edges) != 1 || g.Meta.PreferredVisualisationType != "nodeGraph" {
			t.Errorf(`%s: got %+v, want 2 elements in g.Nodes, 1 element in g.Edges, g.Meta.PreferredVisualisationType == "nodeGraph"`,
				service, g)
		}
	}
	if w := b.Call("GET", httpapi.BaseURL+"/nodegraph/nobody", ""); w.Code != 404 {
		t.Errorf("a service that there is not: %d", w.Code)
	}
}

func TestMeta(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	meta := apitest.GetAs[map[string]struct {
		Method string
		Fields map[string]any
	}](b, "/meta")
	service := meta["/config/loadbalancer"]
	arguments, _ := service.Fields["serviceArguments"].(map[string]any)
	ip, _ := arguments["externalIP"].(map[string]any)
	if service.Method != "POST" || ip["type"] != "string" || ip["required"] != true {
		t.Errorf(`got %+v, want service.Method == "POST", ip["type"] == "string", ip["required"] == true`, service)
	}
	if params := meta["/config/params"]; params.Method != "POST" || len(params.Fields) != 1 {
		t.Errorf(`got %+v, want params.Method == "POST", 1 element in params.Fields`, params)
	}
	if _, there := meta["/version"]; there {
		t.Error("the table has a path that changes nothing")
	}
}

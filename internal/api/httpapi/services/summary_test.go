package services_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi"
	"loxilb/internal/api/httpapi/transport"
	"loxilb/internal/control/desired"
	"loxilb/internal/control/status"
	"loxilb/internal/diagnose/rates"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
	"loxilb/test/apitest"
)

// busy holds the rates of services.
type busy map[lb.Key]float32

func (b busy) Service(k lb.Key) (l rates.Load) {
	l.Active, l.Rates[rates.Connections], l.Rates[rates.BytesIn] = uint64(b[k]), b[k], 100-b[k]
	l.Times = rates.Times{Count: int(b[k]), Median: time.Millisecond, P99: time.Duration(b[k]) * time.Millisecond}
	return l
}

func (b busy) Endpoints(key lb.Key, endpoints int) []rates.Load {
	list := make([]rates.Load, endpoints)
	for i := range list {
		list[i] = b.Service(key)
	}
	return list
}

// TestSummaries checks that the server searches, sorts and counts summaries of services and returns
// the worst state, and that the summary of one service has the evidence of its endpoints.
func TestSummaries(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	key := func(n int) lb.Key {
		return lb.Key{VIP: netip.AddrFrom4([4]byte{20, 20, 20, byte(n)}), Port: 80, Protocol: lb.TCP}
	}
	b.API.Services.Loads = busy{key(3): 2, key(4): 7, key(5): 8}
	for i := range 5 {
		b.MustPost(fmt.Sprintf(`{"serviceArguments":{"externalIP":"20.20.20.%d","port":80,"protocol":"tcp","name":"web-%d","monitor":true},
			"endpoints":[{"endpointIP":"31.31.31.%d","targetPort":8080,"weight":1},{"endpointIP":"32.32.32.1","targetPort":%d,"weight":1}]}`, i+1, 5-i, i+1, 9000+i))
	}
	health := func(addr string, port uint16, state report.HealthState) *report.EndpointHealth {
		return &report.EndpointHealth{EndpointProbe: lb.EndpointProbe{Addr: netip.MustParseAddr(addr), Probe: lb.Probe{Port: port}}, State: state, Evidence: "said " + state.String()}
	}
	b.Fake.Health = []*report.EndpointHealth{
		health("31.31.31.2", 8080, report.HealthDown), health("32.32.32.1", 9001, report.HealthDown), // all of service 2
		health("31.31.31.3", 8080, report.HealthDown), health("32.32.32.1", 9002, report.HealthUp), // one of service 3
		health("31.31.31.4", 8080, report.HealthUp), health("31.31.31.5", 8080, report.HealthUp),
	}
	first := b.Fake.Health[2]
	first.Checked, first.Downs, first.Downtime, first.AvgDelay = time.Unix(1e9, 0), 3, 40*time.Second, 5*time.Millisecond
	both := []report.EndpointStats{{Available: true}, {Available: true}}
	b.Fake.Stats = map[lb.Key]report.ServiceStats{key(4): {
		EndpointStats: report.EndpointStats{Active: 7, Connections: 9}, Endpoints: both,
	}, key(5): {EndpointStats: report.EndpointStats{Active: 8}, Endpoints: both},
		key(1): {Endpoints: both}, key(3): {Endpoints: []report.EndpointStats{{}, {Available: true}}}}
	for n := 2; n <= 5; n++ {
		b.Fake.Want(status.ID(desired.ServiceID(key(n))), 99)
		b.Fake.Succeeded(status.ID(desired.ServiceID(key(n))), 99)
	}
	b.Fake.Failed(status.ID(desired.ServiceID(key(1))), 1, errors.New("no room"), time.Now().Add(time.Hour))
	for query, want := range map[string]string{
		"":                            "5: 20.20.20.1:80/tcp failed 20.20.20.2:80/tcp down 20.20.20.3:80/tcp degraded 20.20.20.4:80/tcp up 20.20.20.5:80/tcp up",
		"?sort=-latency&limit=2":      "5: 20.20.20.5:80/tcp up 20.20.20.4:80/tcp up",
		"?sort=name&limit=2":          "5: 20.20.20.5:80/tcp up 20.20.20.4:80/tcp up",
		"?sort=-key&limit=1&offset=1": "5: 20.20.20.4:80/tcp up",
		"?sort=-connections&limit=2":  "5: 20.20.20.5:80/tcp up 20.20.20.4:80/tcp up",
		"?sort=-rate&limit=1":         "5: 20.20.20.5:80/tcp up",
		"?sort=traffic&limit=1":       "5: 20.20.20.5:80/tcp up",
		"?sort=-state&limit=1":        "5: 20.20.20.4:80/tcp up",
		"?state=trouble&sort=state":   "3: 20.20.20.1:80/tcp failed 20.20.20.2:80/tcp down 20.20.20.3:80/tcp degraded",
		"?search=WEB-3":               "1: 20.20.20.3:80/tcp degraded",
		"?search=31.31.31.2":          "1: 20.20.20.2:80/tcp down",
		"?search=nothing":             "0:",
		"?offset=99":                  "5:",
		"?state=up,degraded&offset=1": "3: 20.20.20.4:80/tcp up 20.20.20.5:80/tcp up",
		"?sort=endpoints&limit=1000":  "5: 20.20.20.1:80/tcp failed 20.20.20.2:80/tcp down 20.20.20.3:80/tcp degraded 20.20.20.4:80/tcp up 20.20.20.5:80/tcp up",
		"?search=20.20.20.4%3A80/tcp": "1: 20.20.20.4:80/tcp up",
		"?limit=1001":                 "limit",
		"?offset=-1":                  "offset",
		"?sort=speed":                 "sort",
		"?state=fine":                 "state",
	} {
		w := b.Call("GET", httpapi.BaseURL+"/status/services"+query, "")
		var list v1.ServiceSummaryList
		if w.Code != 200 {
			if p := apitest.ProblemOf(t, w); w.Code != 400 || p.Field != want || p.Allowed == "" {
				t.Errorf("%s: got %d %s, want code 400 about %s, with the allowed values", query, w.Code, w.Body, want)
			}
			continue
		}
		if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprintf("%d:", list.Total)
		for _, s := range list.ServiceAttr {
			got += " " + s.Key + " " + s.State
		}
		if got != want {
			t.Errorf("%s: %s\nwant %s", query, got, want)
		}
	}
	b.SummaryOfOne()
}

// TestConnectionsAndDrops checks that pages list each connection once, with the total number, and
// drops with their remedies.
func TestConnectionsAndDrops(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	for i := range 4 {
		client, vip, endpoint := netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), uint16(i+1)), netip.MustParseAddrPort("20.20.20.1:80"), netip.MustParseAddrPort("31.31.31.1:8080")
		b.Fake.Conns = append(b.Fake.Conns,
			report.Connection{Protocol: lb.TCP, Src: client, Dst: vip, NewSrc: client, NewDst: endpoint, Endpoint: endpoint, State: "est", Service: "web"},
			report.Connection{Protocol: lb.TCP, Src: endpoint, Dst: client, NewSrc: vip, NewDst: client, Endpoint: endpoint, State: "est", Service: "web", Reply: true})
	}
	for query, want := range map[string]string{
		"?limit=1&offset=2": `{"connectionAttr":[{"bytesIn":0,"client":"10.0.0.1:3","endpoint":"31.31.31.1:8080","idle":0,"packetsIn":0,` +
			`"protocol":"tcp","servName":"web","state":"est","vip":"20.20.20.1:80"}],"total":4}`,
		"?limit=1&uncounted=true": `"vip":"20.20.20.1:80"}],"total":1}`,
		"?state=fini":             `{"connectionAttr":[],"total":0}`,
		"?limit=5000":             `limit`,
		"?offset=5000000":         `offset`,
		"?source=nobody":          `source`,
	} {
		if w := b.Call("GET", httpapi.BaseURL+"/status/connections"+query, ""); !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s\nwant %s", query, w.Code, w.Body, want)
		}
	}
	b.Fake.Dropped = map[string]uint64{"no-endpoint": 5}
	w := b.Call("GET", httpapi.BaseURL+"/status/drops", "")
	if !strings.Contains(w.Body.String(), `"packets":5,"reason":"no-endpoint","remedy":"undrain or add an endpoint`) || !strings.Contains(w.Body.String(), `"reason":"rule"`) {
		t.Errorf("got %d %s, want `\"packets\":5,\"reason\":\"no-endpoint\",\"remedy\":\"undrain or add an endpoint` in the body, "+
			"`\"reason\":\"rule\"` in the body",
			w.Code, w.Body)
	}
}

// TestConnectionOrder checks that connections are sorted by any column of a screen, and that the
// response has one page and the total number.
func TestConnectionOrder(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	for i := range 50 {
		client := netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), uint16(i+1))
		vip := netip.MustParseAddrPort("20.20.20.1:80")
		b.Fake.Conns = append(b.Fake.Conns, report.Connection{
			Protocol: lb.TCP, Src: client, Dst: vip, Endpoint: vip, State: "est", Age: time.Duration(100-i) * time.Second,
			Idle: time.Duration(i%7) * time.Second, Traffic: report.Traffic{Packets: uint64(i * 7 % 50), Bytes: uint64(i)},
		})
	}
	for query, want := range map[string]string{
		"sort=age&limit=1":                      `"age":51,`,
		"sort=-age&limit=1&offset=1":            `"age":99,`,
		"sort=-idle&limit=1":                    `"client":"10.0.0.1:7",`,
		"sort=-bytes&limit=1&uncounted=true":    `"bytesIn":49,`,
		"sort=packets&limit=1&offset=49":        `"packetsIn":49,`,
		"sort=-client&limit=1":                  `"client":"10.0.0.1:50",`,
		"sort=client&limit=10&offset=1000":      `{"connectionAttr":[],"total":50}`,
		"sort=bytes&limit=1&source=10.0.0.9/32": `"total":0`,
		"sort=nothing":                          `sort`,
	} {
		w := b.Call("GET", httpapi.BaseURL+"/status/connections?"+query, "")
		counted := w.Code != 200 || strings.Contains(want, "total") || strings.Contains(w.Body.String(), `"total":50`)
		if !strings.Contains(w.Body.String(), want) || !counted {
			t.Errorf("%s: %d %s\nwant %s", query, w.Code, w.Body, want)
		}
	}
}

// TestTopClients checks that the response has the clients with the most connections, of all
// services or of one, and sums.
func TestTopClients(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	vip, endpoint := netip.MustParseAddrPort("20.20.20.1:80"), netip.MustParseAddrPort("31.31.31.1:8080")
	for client, connections := range map[string]int{"10.0.0.1": 1, "10.0.0.2": 3, "10.0.1.1": 2} {
		for i := range connections {
			from := netip.AddrPortFrom(netip.MustParseAddr(client), uint16(i+1))
			request := report.Connection{Protocol: lb.TCP, Src: from, Dst: vip, NewSrc: from, NewDst: endpoint, Endpoint: endpoint, Service: "web"}
			reply := report.Connection{Protocol: lb.TCP, Src: endpoint, Dst: from, NewSrc: vip, NewDst: from, Endpoint: endpoint, Service: "web"}
			request.Traffic = report.Traffic{Packets: 1, Bytes: 100}
			reply.Reply, reply.Traffic = true, report.Traffic{Packets: 2, Bytes: 900}
			b.Fake.Conns = append(b.Fake.Conns, request, reply)
		}
	}
	for query, want := range map[string]string{
		"":                        `[{"bytesIn":300,"bytesOut":2700,"client":"10.0.0.2","connections":3,"packetsIn":3,"packetsOut":6},{`,
		"?sort=bytes&limit=1":     `"packetsOut":6}],"connections":6,"error":0,"packets":18,"total":3}`,
		"?prefix4=24&limit=1":     `"client":"10.0.0.0/24","connections":4,`,
		"?service=nothing":        `"total":0`,
		"?endpoint=31.31.31.9":    `"total":0`,
		"?sort=age":               `sort`,
		"?prefix4=33":             `prefix4`,
		"?prefix6=-1":             `prefix6`,
		"?limit=1001":             `limit`,
		"?service=1.2.3.4:x/tcp":  `service`,
		"?service=web&prefix6=64": `"total":3`,
	} {
		if w := b.Call("GET", httpapi.BaseURL+"/status/clients"+query, ""); !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s\nwant %s", query, w.Code, w.Body, want)
		}
	}
	b.Fake.ConnErr = apitest.ErrDataPath
	if w := b.Call("GET", httpapi.BaseURL+"/status/clients", ""); w.Code != 503 {
		t.Errorf("without the table: %d %s", w.Code, w.Body)
	}
}

// TestNode checks that a node reports its name, build, uptime and roles.
func TestNode(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, func(o *httpapi.Options) { o.Version = v1.Version{Version: "1.2.3"} })
	role := `{"instance":"blue","state":"MASTER","vip":"9.9.9.9"}`
	if w := b.Call("POST", httpapi.BaseURL+"/config/cistate", role); w.Code != 200 {
		t.Fatalf("got %v, want code 200", w.Body)
	}
	w := b.Call("GET", httpapi.BaseURL+"/status/node", "")
	var node v1.Node
	if err := json.Unmarshal(w.Body.Bytes(), &node); err != nil {
		t.Fatal(err, w.Body)
	}
	host, _ := os.Hostname()
	if node.HostName != host || node.Version != "1.2.3" || node.Uptime <= 0 || time.Since(node.Started) > time.Minute {
		t.Errorf(`got %s, want node.HostName == host, node.Version == "1.2.3", `+
			"node.Uptime > 0, time.Since(node.Started) <= time.Minute",
			w.Body)
	}
	blue := v1.InstanceState{Instance: "blue", State: "MASTER", Vip: "9.9.9.9"}
	if len(node.Instances) != 2 || node.Instances[0] != blue {
		t.Errorf("roles: %s", w.Body)
	}
}

// TestPageIsServed checks that the page is public over TCP, not available by the socket, and can be
// turned off.
func TestPageIsServed(t *testing.T) {
	t.Parallel()
	b, _ := apitest.Secured(t)
	if w := b.Call("GET", "/", ""); w.Code != 200 || !strings.Contains(w.Body.String(), "<html") {
		t.Errorf("without a token: %d", w.Code)
	}
	if w := b.Call("POST", "/", "{}"); w.Code != 401 {
		t.Errorf("POST: %d", w.Code)
	}
	for _, path := range []string{
		"/page/../netlox/v1/version", "/page/%2e%2e/netlox/v1/version", "/page/%2e%2e%2fnetlox/v1/version",
		"//page/..//netlox/v1/version", "/page/x/../../netlox/v1/version/",
	} {
		if w := b.Call("GET", path, ""); w.Code == 200 || strings.Contains(w.Body.String(), "buildInfo") {
			t.Errorf("%s without a token: %d %s", path, w.Code, w.Body)
		}
	}
	b.Http = b.API.Handler(transport.BySocket)
	if w := b.Call("GET", "/", ""); w.Code != 404 {
		t.Errorf("over the socket the code is %d", w.Code)
	}
	off := apitest.New(t, func(o *httpapi.Options) { o.NoPage = true })
	if w := off.Call("GET", "/", ""); w.Code != 404 {
		t.Errorf("switched off: %d", w.Code)
	}
}

package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/desired"
	"loxilb/internal/httpapi/summary"
	"loxilb/internal/httpapi/transport"
	"loxilb/internal/lb"
	"loxilb/internal/rates"
	"loxilb/internal/status"
)

// busy has services carry so much.
type busy map[lb.Key]float32

func (b busy) Service(k lb.Key) (l rates.Load) {
	l.Active, l.Rates[rates.Connections], l.Rates[rates.BytesIn] = uint64(b[k]), b[k], 100-b[k]
	return l
}

// Services in short are searched, sorted and counted by the server, and the worst is told; one of them tells the evidence of its endpoints.
func TestSummaries(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	key := func(n int) lb.Key {
		return lb.Key{VIP: netip.AddrFrom4([4]byte{20, 20, 20, byte(n)}), Port: 80, Protocol: lb.TCP}
	}
	b.api.Summary = summary.New(b.store, b.fake, busy{key(4): 7, key(5): 8}, b.fake, b.fake, b.api.entry)
	for i := range 5 {
		b.mustPost(fmt.Sprintf(`{"serviceArguments":{"externalIP":"20.20.20.%d","port":80,"protocol":"tcp","name":"web-%d","monitor":true},
			"endpoints":[{"endpointIP":"31.31.31.%d","targetPort":8080,"weight":1},{"endpointIP":"32.32.32.1","targetPort":%d,"weight":1}]}`, i+1, 5-i, i+1, 9000+i))
	}
	health := func(addr string, port uint16, state lb.HealthState) *lb.EndpointHealth {
		return &lb.EndpointHealth{EndpointProbe: lb.EndpointProbe{Addr: netip.MustParseAddr(addr), Probe: lb.Probe{Port: port}}, State: state, Evidence: "said " + state.String()}
	}
	b.fake.health = []*lb.EndpointHealth{
		health("31.31.31.2", 8080, lb.HealthDown), health("32.32.32.1", 9001, lb.HealthDown), // all of 2
		health("31.31.31.3", 8080, lb.HealthDown), health("32.32.32.1", 9002, lb.HealthUp), // one of 3
		health("31.31.31.4", 8080, lb.HealthUp), health("31.31.31.5", 8080, lb.HealthUp),
	}
	both := []lb.EndpointStats{{Takes: true}, {Takes: true}}
	b.fake.stats = map[lb.Key]lb.ServiceStats{key(4): {EndpointStats: lb.EndpointStats{Active: 7, Connections: 9}, Endpoints: both}, key(5): {EndpointStats: lb.EndpointStats{Active: 8}, Endpoints: both},
		key(1): {Endpoints: both}, key(3): {Endpoints: []lb.EndpointStats{{}, {Takes: true}}}}
	for n := 2; n <= 5; n++ {
		b.fake.Want(status.ID(desired.ServiceID(key(n))), 99)
		b.fake.Succeeded(status.ID(desired.ServiceID(key(n))), 99)
	}
	b.fake.Failed(status.ID(desired.ServiceID(key(1))), 1, errors.New("no room"), time.Now().Add(time.Hour))
	for query, want := range map[string]string{
		"":                            "5: 20.20.20.1:80/tcp failed 20.20.20.2:80/tcp down 20.20.20.3:80/tcp degraded 20.20.20.4:80/tcp up 20.20.20.5:80/tcp up",
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
		w := b.call("GET", BaseURL+"/status/services"+query, "")
		var list v1.ServiceSummaryList
		if w.Code != 200 {
			if p := problemOf(t, w); w.Code != 400 || p.Field != want || p.Allowed == "" {
				t.Errorf("%s: %d %s", query, w.Code, w.Body)
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
	b.summaryOfOne()
}

func (b *bench) summaryOfOne() {
	b.t.Helper()
	w := b.call("GET", BaseURL+"/status/service?key=20.20.20.3:80/tcp", "")
	var one v1.ServiceDetail
	if err := json.Unmarshal(w.Body.Bytes(), &one); err != nil {
		b.t.Fatal(err, w.Body)
	}
	if one.Summary.State != "degraded" || one.Summary.Up != 1 || one.Service.ServiceArguments.Name != "web-3" || len(one.Endpoints) != 2 ||
		one.Endpoints[0].State != "down" || one.Endpoints[0].Evidence != "said down" || one.Endpoints[1].State != "up" {
		b.t.Errorf("%s", w.Body)
	}
	for query, want := range map[string]int{"": 400, "?key=x": 400, "?key=20.20.20.9:80/tcp": 404} {
		if w := b.call("GET", BaseURL+"/status/service"+query, ""); w.Code != want {
			b.t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
	}
}

// Connections are told once each, a page of them, with their number; drops with what mends them.
func TestConnectionsAndDrops(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	for i := range 4 {
		client, vip, endpoint := netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), uint16(i+1)), netip.MustParseAddrPort("20.20.20.1:80"), netip.MustParseAddrPort("31.31.31.1:8080")
		b.fake.connections = append(b.fake.connections,
			lb.Connection{Protocol: lb.TCP, Src: client, Dst: vip, NewSrc: client, NewDst: endpoint, Endpoint: endpoint, State: "est", Service: "web"},
			lb.Connection{Protocol: lb.TCP, Src: endpoint, Dst: client, NewSrc: vip, NewDst: client, Endpoint: endpoint, State: "est", Service: "web", Reply: true})
	}
	for query, want := range map[string]string{
		"?limit=1&offset=2":       `{"connectionAttr":[{"bytesIn":0,"client":"10.0.0.1:3","endpoint":"31.31.31.1:8080","packetsIn":0,"protocol":"tcp","servName":"web","state":"est","vip":"20.20.20.1:80"}],"total":4}`,
		"?limit=1&uncounted=true": `"vip":"20.20.20.1:80"}],"total":1}`,
		"?state=fini":             `{"connectionAttr":[],"total":0}`,
		"?limit=5000":             `limit`,
		"?offset=5000000":         `offset`,
		"?source=nobody":          `source`,
	} {
		if w := b.call("GET", BaseURL+"/status/connections"+query, ""); !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s\nwant %s", query, w.Code, w.Body, want)
		}
	}
	b.fake.drops = map[string]uint64{"no-endpoint": 5}
	w := b.call("GET", BaseURL+"/status/drops", "")
	if !strings.Contains(w.Body.String(), `"packets":5,"reason":"no-endpoint","remedy":"loxicmd get lb`) || !strings.Contains(w.Body.String(), `"reason":"rule"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// The page is for everybody over TCP, for nobody by the socket, and can be switched off.
func TestPageIsServed(t *testing.T) {
	t.Parallel()
	b, _ := secured(t)
	if w := b.call("GET", "/", ""); w.Code != 200 || !strings.Contains(w.Body.String(), "<html") {
		t.Errorf("without a token: %d", w.Code)
	}
	if w := b.call("POST", "/", "{}"); w.Code != 401 {
		t.Errorf("POST: %d", w.Code)
	}
	for _, path := range []string{"/page/../netlox/v1/version", "/page/%2e%2e/netlox/v1/version", "/page/%2e%2e%2fnetlox/v1/version", "//page/..//netlox/v1/version", "/page/x/../../netlox/v1/version/"} {
		if w := b.call("GET", path, ""); w.Code == 200 || strings.Contains(w.Body.String(), "buildInfo") {
			t.Errorf("%s without a token: %d %s", path, w.Code, w.Body)
		}
	}
	b.http = b.api.handler(transport.BySocket)
	if w := b.call("GET", "/", ""); w.Code != 404 {
		t.Errorf("by the socket: %d", w.Code)
	}
	off := newBench(t, func(o *Options) { o.NoPage = true })
	if w := off.call("GET", "/", ""); w.Code != 404 {
		t.Errorf("switched off: %d", w.Code)
	}
}

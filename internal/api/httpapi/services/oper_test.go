package services_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"loxilb/internal/lb"
	"loxilb/test/apitest"
)

// TestAttachDetach changes the endpoints of a service one step at a time.
func TestAttachDetach(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	request := func(args string, endpoints ...string) string {
		for i, e := range endpoints {
			ip, weight, _ := strings.Cut(e, "*")
			endpoints[i] = `{"endpointIP":"` + ip + `","targetPort":80,"weight":` + weight + `}`
		}
		return `{"serviceArguments":{"externalIP":"20.20.20.1","port":80,"protocol":"tcp"` + args + `},"endpoints":[` + strings.Join(endpoints, ",") + `]}`
	}
	const key = "20.20.20.1:80/tcp"
	for _, step := range []struct {
		body string
		code int
		want string // part of the service, or of the message
		note string // part of a warning
	}{
		{request(`,"oper":2`, "10.0.0.1*1"), 200, "", "service " + key + " does not exist"},
		{request(`,"oper":1,"sel":2,"name":"web"`, "10.0.0.1*1"), 200, "priority endpoints=10.0.0.1:80 name=web", ""},
		{request(`,"oper":1`, "10.0.0.2*3", "10.0.0.3*1"), 200, "priority endpoints=10.0.0.1:80,10.0.0.2:80:3,10.0.0.3:80 name=web", ""},
		{request(`,"oper":1`, "10.0.0.2*3"), 409, "exists already with the same content", ""},
		{request(`,"oper":1,"sel":2,"managed":true`, "10.0.0.2*4"), 200, "priority endpoints=10.0.0.1:80,10.0.0.2:80:4,10.0.0.3:80 name=web", ""},
		{
			request(`,"oper":1,"name":"other"`, "10.0.0.4*4"), 200,
			"priority endpoints=10.0.0.1:80,10.0.0.2:80:4,10.0.0.3:80,10.0.0.4:80:4 name=web",
			"serviceArguments.name stays web, not other",
		},
		{
			request(`,"oper":2,"inactiveTimeOut":5`, "10.0.0.4*4"), 200,
			"priority endpoints=10.0.0.1:80,10.0.0.2:80:4,10.0.0.3:80 name=web",
			"serviceArguments.inactiveTimeOut stays 0s, not 5s",
		},
		{
			request(`,"oper":2`, "10.0.0.2*1", "10.0.0.9*1"), 200, "priority endpoints=10.0.0.1:80,10.0.0.3:80 name=web",
			"endpoints[1] does not exist: 10.0.0.9:80 is not an endpoint of service " + key,
		},
		{`{"lbAttr":[` + request(`,"oper":1`, "10.0.0.2*1") + `]}`, 200, "priority endpoints=10.0.0.1:80,10.0.0.3:80,10.0.0.2:80 name=web", ""},
		{request(`,"oper":2`, "10.0.0.3*1", "10.0.0.1*9", "10.0.0.2*9"), 200, "", ""},
		{request(`,"oper":2`, "10.0.0.1*1"), 200, "", "does not exist"},
	} {
		w := b.Post(step.body)
		if w.Code != 200 {
			if e := apitest.ProblemOf(t, w); w.Code != step.code || !strings.Contains(e.Message, step.want) {
				t.Errorf("%s:\n%d %s, want %d %s", step.body, w.Code, e.Message, step.code, step.want)
			}
			continue
		}
		got := ""
		for s := range b.Store.Services.All(b.Store.Snapshot()) {
			got = strings.TrimPrefix(s.String(), key+" mode=default select=")
		}
		notes := strings.Join(w.Header().Values("Warning"), "\n")
		if step.code != 200 || got != step.want || !strings.Contains(notes, step.note) || (step.note == "") != (notes == "") {
			t.Errorf("%s:\n%d %s, want %d %s; warnings %q, want %q", step.body, w.Code, got, step.code, step.want, notes, step.note)
		}
	}
}

// TestAttachSuitsService checks that endpoints to attach must suit the service that exists, not the
// defaults of the fields that the request leaves out.
func TestAttachSuitsService(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	request := func(args, endpoint string) string {
		return `{"serviceArguments":{"externalIP":"20.20.20.1","port":443,"protocol":"udp"` + args + `},"endpoints":[{"weight":1,"targetPort":443,` + endpoint + `}]}`
	}
	for _, step := range []struct {
		args, endpoint string
		code           int
		message        string
	}{
		{`,"oper":1`, `"endpointIP":"10.0.0.1","serverID":"0a"`, 400, "is set, but select is rr"}, // creates the service
		{`,"sel":"quic"`, `"endpointIP":"10.0.0.1","serverID":"0a"`, 200, ""},
		{`,"oper":1`, `"endpointIP":"10.0.0.2","serverID":"0b"`, 200, ""},
		{`,"oper":1`, `"endpointIP":"10.0.0.3"`, 400, "has no server ID"},
		{`,"oper":2`, `"endpointIP":"10.0.0.2"`, 200, ""},
	} {
		w := b.Post(request(step.args, step.endpoint))
		if w.Code != step.code || w.Code != 200 && !strings.Contains(apitest.ProblemOf(t, w).Message, step.message) {
			t.Errorf("%s %s: %d %s, want %d %q", step.args, step.endpoint, w.Code, w.Body, step.code, step.message)
		}
	}
	for s := range b.Store.Services.All(b.Store.Snapshot()) {
		if len(s.Endpoints) != 1 || s.Endpoints[0].ServerID != "0a" {
			t.Errorf("the endpoints are %v, want the first one", s.Endpoints)
		}
	}
}

// TestAttachKeepsToEndpoints sends each field together with endpoints to attach: as the service has
// it, as its default, and with another value, which has no effect and gives a warning.
func TestAttachKeepsToEndpoints(t *testing.T) {
	t.Parallel()
	others := map[string]func(*lb.Service){
		lb.FieldMode: func(s *lb.Service) {
			s.Mode, s.Algorithm, s.PersistTimeout, s.PersistPrefix = lb.ModeOneArm, lb.Persist, 0, 0
		},
		lb.FieldSelect:            func(s *lb.Service) { s.Algorithm, s.PersistTimeout, s.PersistPrefix = lb.Hash, 0, 0 },
		lb.FieldSecondary:         func(s *lb.Service) { s.Secondary = addrs("20.20.20.9") },
		lb.FieldIdleTimeout:       func(s *lb.Service) { s.IdleTimeout = 7 * time.Second },
		lb.FieldSources:           func(s *lb.Service) { s.Sources = []netip.Prefix{netip.MustParsePrefix("11.0.0.0/8")} },
		lb.FieldPersistTimeout:    func(s *lb.Service) { s.Algorithm, s.PersistTimeout = lb.Persist, 7*time.Second },
		lb.FieldPersistPrefix:     func(s *lb.Service) { s.Algorithm, s.PersistPrefix = lb.Persist, 7 },
		lb.FieldSNAT:              func(s *lb.Service) { s.Mode, s.SNAT = lb.ModeFullNAT, addrs("10.0.0.9") },
		lb.FieldRefuse:            func(s *lb.Service) { s.Refuse = lb.RefusePass },
		lb.FieldSynProtect:        func(s *lb.Service) { s.SynProtect = lb.SynProtectOff },
		lb.FieldDenied:            func(s *lb.Service) { s.Denied = []netip.Prefix{netip.MustParsePrefix("12.0.0.0/8")} },
		lb.FieldRate:              func(s *lb.Service) { s.MaxRate = 7 },
		lb.FieldConnections:       func(s *lb.Service) { s.MaxConnections = 7 },
		lb.FieldClientRate:        func(s *lb.Service) { s.ClientRate = 7 },
		lb.FieldClientConnections: func(s *lb.Service) { s.ClientConnections = 7 },
		lb.FieldClientPrefix:      func(s *lb.Service) { s.ClientRate, s.ClientPrefix = 7, 7 },
		lb.FieldTunnel:            func(s *lb.Service) { s.Mode, s.Tunnel, s.SNAT, s.Endpoints[0].Port = lb.ModeDSR, lb.TunnelGUE, nil, 80 },
		lb.FieldMSS:               func(s *lb.Service) { s.MSS = 777 },
		lb.FieldEgress:            func(s *lb.Service) { s.Egress = true },
		lb.FieldProxyProtocol:     func(s *lb.Service) { s.ProxyProtocol = true },
		lb.FieldBGP:               func(s *lb.Service) { s.BGP = true },
		lb.FieldAnnounce:          func(s *lb.Service) { s.BGP, s.Announce = true, lb.AnnounceAlways },
		lb.FieldMED:               func(s *lb.Service) { s.BGP, s.MED = true, 7 },
		lb.FieldLocalPref:         func(s *lb.Service) { s.BGP, s.LocalPref = true, 7 },
		lb.FieldCommunities:       func(s *lb.Service) { s.BGP, s.Communities = true, []lb.Community{7} },
		lb.FieldPrepend:           func(s *lb.Service) { s.BGP, s.Prepend = true, 7 },
		lb.FieldAggregate:         func(s *lb.Service) { s.BGP, s.Aggregate = true, netip.MustParsePrefix("20.20.20.0/24") },
		lb.FieldOwner:             func(s *lb.Service) { s.Owner = "other" },
		lb.FieldName:              func(s *lb.Service) { s.Name = "other" },
		lb.FieldMonitor:           func(s *lb.Service) { s.Monitor = true },
		lb.FieldOutlier:           func(s *lb.Service) { s.Outlier = lb.OutlierOff },
		lb.FieldAllDown:           func(s *lb.Service) { s.AllDown = lb.AllDownPanic },
		lb.FieldOnRemove:          func(s *lb.Service) { s.OnRemove = lb.ClosingReset },
		lb.FieldOnFail:            func(s *lb.Service) { s.OnFail = lb.ClosingReset },
		lb.FieldDrainTime:         func(s *lb.Service) { s.OnRemove, s.DrainTime = lb.ClosingDrain, 7*time.Second },
		lb.FieldSlowStart:         func(s *lb.Service) { s.SlowStart = 7 * time.Second },
		lb.FieldFailover:          func(s *lb.Service) { s.FailoverBelow = 7 },
		lb.FieldProbeType:         func(s *lb.Service) { s.Probe.Type = lb.ProbePing },
		lb.FieldProbePort:         func(s *lb.Service) { s.Probe.Port = 81 },
		lb.FieldProbeRequest:      func(s *lb.Service) { s.Probe.Request = "x" },
		lb.FieldProbeResponse:     func(s *lb.Service) { s.Probe.Response = "x" },
		lb.FieldProbeInterval:     func(s *lb.Service) { s.Probe.Interval = time.Second },
		lb.FieldProbeWait:         func(s *lb.Service) { s.Probe.Timeout = time.Second },
		lb.FieldProbeRetries:      func(s *lb.Service) { s.Probe.Fall = 7 },
		lb.FieldProbeRise:         func(s *lb.Service) { s.Probe.Rise = 7 },
		lb.FieldProbeHost:         func(s *lb.Service) { s.Probe.Type, s.Probe.Host = lb.ProbeHTTP, "other" },
		lb.FieldProbeStatuses: func(s *lb.Service) {
			s.Probe.Type, s.Probe.Statuses = lb.ProbeHTTP, []lb.StatusRange{{First: 204, Last: 204}}
		},
		lb.FieldProbeCA:          func(s *lb.Service) { s.Probe.Type, s.Probe.CA = lb.ProbeHTTPS, "/ca" },
		lb.FieldProbeCertificate: func(s *lb.Service) { s.Probe.Type, s.Probe.Certificate, s.Probe.Key = lb.ProbeHTTPS, "/c", "/k" },
		lb.FieldProbeKey:         func(s *lb.Service) { s.Probe.Type, s.Probe.Certificate, s.Probe.Key = lb.ProbeHTTPS, "/c", "/k" },
	}
	full, err := lb.ParseService("20.20.20.1:80/tcp mode=fullnat select=persist endpoints=10.0.0.1:80 secips=20.20.20.2 idle=300s " +
		"sources=10.0.0.0/8 persist-timeout=60s persist-prefix=24 snat=10.0.0.8 refuse=drop mss=1200 name=web")
	if err != nil {
		t.Fatal(err)
	}
	plain := lb.Service{Key: full.Key, Endpoints: full.Endpoints}
	for _, f := range lb.Fields() {
		if f.Name == lb.FieldEndpoints || f.Name == lb.FieldQUIC || f.Name == lb.FieldHelper || f.Fixed { // QUIC and TFTP are for UDP
			continue
		}
		change, ok := others[f.Name]
		if !ok {
			t.Errorf("field %s: this test needs another value for it", f.Name)
			continue
		}
		for _, oper := range []int{1, 2} {
			b := apitest.New(t, nil)
			b.MustPost(b.AsRequest(&full, 0))
			two := full.Clone() // leaves one
			two.Endpoints = append(two.Endpoints, lb.Endpoint{Addr: netip.MustParseAddr("10.0.0.2"), Port: 80, Weight: 3})
			b.MustPost(b.AsRequest(&two, 0))
			// The fields besides the endpoints first have their defaults, then the service's
			// values.
			last := lb.Service{Key: full.Key, Endpoints: two.Endpoints[1:]}
			b.MustPost(b.AsRequest(&last, 2))
			last = full.Clone()
			last.Endpoints = two.Endpoints[1:]
			b.MustPost(b.AsRequest(&last, 1))

			wrong := plain.Clone()
			change(&wrong)
			if oper == 1 {
				wrong.Endpoints[0].Weight = 9 // makes it a change
			}
			want, _ := b.Store.Services.Get(b.Store.Snapshot(), full.Key)
			want = want.Clone()
			w := b.Post(b.AsRequest(&wrong, oper))
			if text := strings.Join(w.Header().Values("Warning"), "\n"); w.Code != 200 || !strings.Contains(text, f.Property+" stays ") {
				t.Errorf("%s, oper %d: %d %s: %s", f.Name, oper, w.Code, w.Body, text)
			}
			if oper == 2 {
				want.Endpoints = want.Endpoints[1:]
			} else {
				want.Endpoints[0] = wrong.Endpoints[0]
			}
			if got, _ := b.Store.Services.Get(b.Store.Snapshot(), full.Key); !got.Equal(want) {
				t.Errorf("%s, oper %d changed more than endpoints: %s, want %s", f.Name, oper, got, want)
			}
		}
	}
}

// TestAttachNamesTheField checks that a warning names the one field that differs.
func TestAttachNamesTheField(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		`"mss":1400`:          `serviceArguments.mss stays 0, not 1400: `,
		`"refuse":"drop"`:     `serviceArguments.refuse stays reject, not drop: `,
		`"egress":true`:       `serviceArguments.egress stays false, not true: `,
		`"inactiveTimeOut":5`: `serviceArguments.inactiveTimeOut stays 0s, not 5s: `,
		`"name":"a\"b"`:       `serviceArguments.name stays none, not a\\\"b: `,
	} {
		b := apitest.New(t, nil)
		b.MustPost(apitest.Demo)
		w := b.Post(strings.Replace(apitest.Demo, `"protocol"`, args+`,"oper":1,"protocol"`, 1))
		want = `299 loxilb "` + want + `oper 1 changes the endpoints of service 20.20.20.1:2020/tcp only"`
		if got := w.Header().Values("Warning"); !slices.Equal(got, []string{want}) {
			t.Errorf("%d %s, want\n%s", w.Code, got, want)
		}
	}
}

func addrs(text string) []netip.Addr { return []netip.Addr{netip.MustParseAddr(text)} }

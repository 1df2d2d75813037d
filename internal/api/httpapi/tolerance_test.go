package httpapi_test

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"loxilb/internal/api/httpapi"
	"loxilb/internal/lb"
	"loxilb/test/apitest"
)

// TestUnknownIgnored checks that with --compat unknown properties are ignored and reported: to the
// client each time, in the log once per name. Without it, they are refused.
func TestUnknownIgnored(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	b := apitest.New(t, func(o *httpapi.Options) { o.Compat, o.Log = true, slog.New(slog.NewTextHandler(&log, nil)) })
	novel := strings.NewReplacer(`{"serviceArguments":{`, `{"novel":{"a":[1]},"nothing":{},"serviceArguments":{"tls":true,`,
		`"protocol":"tcp"`, `"protocol":"tcp","inactiveTimeOut":90000,"monitor":true,"probeRetries":500,"probeTimeout":90000`, `"weight":1}`, `"weight":1,"zone":"a","x":0}`).Replace(apitest.Demo)
	for n := range 2 {
		w := b.Post(strings.Replace(novel, "2020", []string{"2020", "2021"}[n], 1))
		said := strings.Join(w.Header().Values("Warning"), "\n")
		for _, want := range []string{
			`\"novel\"`, `\"serviceArguments.tls\"`, `\"endpoints.zone\"`,
			"inactiveTimeOut 90000 is above 86400 seconds: it is the default", "probeRetries 500 is above 100: it is 100", "probeTimeout 90000 is above 86400 seconds: it is 86400",
		} {
			if w.Code != 200 || !strings.Contains(said, want) || strings.Contains(said, "nothing") {
				t.Errorf("%d %s, %s, want %s", w.Code, w.Body, said, want)
			}
		}
	}
	s, _ := b.Store.Services.Get(b.Store.Snapshot(), apitest.DemoKey())
	if got := s.String(); got != "20.20.20.1:2020/tcp mode=default select=rr endpoints=31.31.31.1:5001,32.32.32.1:5001 monitor=true probe-interval=24h0m0s probe-retries=100" {
		t.Errorf("stored: %s", got)
	}
	if n := strings.Count(log.String(), "unknown property ignored because of --compat"); n != 3 {
		t.Errorf("the log has %d lines: %s", n, log.String())
	}
	if w := b.Post(strings.Replace(novel, `"a":[1]`, `"a":`, 1)); w.Code != 400 {
		t.Errorf("no JSON: %d %s", w.Code, w.Body)
	}
	strict := apitest.New(t, nil)
	for _, body := range []string{novel, strings.Replace(apitest.Demo, `"protocol"`, `"inactiveTimeOut":90000,"protocol"`, 1)} {
		if w := strict.Post(body); w.Code != 400 {
			t.Errorf("without --compat: %d %s", w.Code, w.Body)
		}
	}
}

// TestProbeLimitsTolerated checks that with --compat too high numbers of a probed address are
// reduced to the limit, with a warning. Otherwise, and in apply, they are refused.
func TestProbeLimitsTolerated(t *testing.T) {
	t.Parallel()
	const body = `{"hostName":"31.31.31.1","inactiveReTries":500,"probeType":"ping","probeDuration":90000}`
	b := apitest.New(t, func(o *httpapi.Options) { o.Compat = true })
	w := b.Call("POST", httpapi.BaseURL+"/config/endpoint", body)
	said := strings.Join(w.Header().Values("Warning"), "\n")
	for _, want := range []string{"inactiveReTries 500 is above 100: it is 100", "probeDuration 90000 is above 86400 seconds: it is 86400"} {
		if w.Code != 200 || !strings.Contains(said, want) {
			t.Errorf("%d %s, %s, want %s", w.Code, w.Body, said, want)
		}
	}
	e, ok := b.Store.Endpoints.Get(b.Store.Snapshot(), lb.NameOfProbe(netip.MustParseAddr("31.31.31.1"), &lb.Probe{Type: lb.ProbePing}))
	if !ok || e.Probe.Fall != 100 || e.Probe.Interval != 24*time.Hour {
		t.Errorf("stored: %t %+v", ok, e)
	}
	object := `{"objects":[{"kind":"endpoint","spec":` + body + `}]}`
	if w := b.Call("POST", httpapi.BaseURL+"/config/apply", object); w.Code != 400 {
		t.Errorf("apply: %d %s", w.Code, w.Body)
	}
	if w := apitest.New(t, nil).Call("POST", httpapi.BaseURL+"/config/endpoint", body); w.Code != 400 {
		t.Errorf("without --compat: %d %s", w.Code, w.Body)
	}
}

// TestNotTolerated checks that unknown properties in matches of firewall rules, and in requests
// that the contract lacks, are refused also with --compat, and that nothing changes.
func TestNotTolerated(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, func(o *httpapi.Options) { o.Compat = true })
	b.MustPost(apitest.Demo)
	before := b.Store.Snapshot().Revision()
	const late = `{"kind":"lb","spec":{"serviceArguments":{"externalIP":"20.20.20.1","port":80,"protocol":"tcp","inactiveTimeOut":90000},
		"endpoints":[{"endpointIP":"10.0.0.1","targetPort":80,"weight":1}]}}`
	for _, c := range []struct{ method, path, body, want string }{
		{"POST", "/config/apply", `{"objects":[` + apitest.Object(1, "", "10.0.0.1") + `],"dry_run":true}`, `"dry_run"`},
		{"POST", "/config/apply", `{"objects":[` + apitest.Object(1, "", "10.0.0.1") + `],"confirms":60}`, `"confirms"`},
		{"POST", "/config/apply", `{"objects":[` + late + `]}`, "inactiveTimeOut"},
		{"POST", "/config/rollback", `{"revision":0,"dry_run":true}`, `"dry_run"`},
		{"POST", "/config/drain", `{"endpoint":"31.31.31.1:5001","deadline":60}`, `"deadline"`},
		{"POST", "/config/endpointweight", `{"endpoint":"31.31.31.1:5001","weight":0,"servname":"","services":"x"}`, `"services"`},
		{"POST", "/config/params", `{"logLevel":"debug","level":"info"}`, `"level"`},
		{"DELETE", "/config/loadbalancer", `{"lbAttr":[{"externalIP":"20.20.20.1","port":2020,"protocol":"tcp","mark":7}]}`, `"mark"`},
		{"POST", "/config/firewall", `{"ruleArguments":{"sourceIp6":"2001:db8::/32"},"opts":{"drop":true,"novel":1}}`, `"sourceIp6"`},
		{"POST", "/config/firewall", `{"novel":1,"fwAttr":[{"ruleArguments":{"portname":"eth9","source":"10.0.0.1"},"opts":{"drop":true}}]}`, `"novel"`},
		{"POST", "/config/firewall", `{"fwAttr":[{"ruleArguments":{"portname":"eth9","source":"10.0.0.1"},"opts":{"drop":true}}]}`, `"source"`},
		{"POST", "/config/firewall", `{"arguments":{"portname":"eth9"},"opts":{"drop":true}}`, `"arguments"`},
	} {
		w := b.Call(c.method, httpapi.BaseURL+c.path, c.body)
		if e := apitest.ProblemOf(t, w); w.Code != 400 || !strings.Contains(e.Message, c.want) || w.Header().Get("Warning") != "" {
			t.Errorf("%s %s: %d %+v, want %s", c.path, c.body, w.Code, e, c.want)
		}
	}
	if now := b.Store.Snapshot().Revision(); now != before {
		t.Errorf("the revision is %d, and was %d", now, before)
	}
	w := b.Call("POST", httpapi.BaseURL+"/config/firewall", `{"ruleArguments":{"sourceIP":"10.9.0.0/16"},"opts":{"novel":1,"drop":true}}`)
	if said := w.Header().Get("Warning"); w.Code != 200 || !strings.Contains(said, `\"opts.novel\"`) {
		t.Errorf("an option that is not known: %d %s, %s", w.Code, w.Body, said)
	}
}

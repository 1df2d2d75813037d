package services_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"loxilb/internal/api/httpapi"
	"loxilb/internal/lb/report"
	"loxilb/test/apitest"
)

const probedService = `{"serviceArguments":{"externalIP":"20.20.20.1","port":2020,"protocol":"tcp"%s},"endpoints":[{"endpointIP":"31.31.31.1","targetPort":5001,"weight":1}]}`

// TestProbeFiles checks that a file that the daemon would not read is refused wherever a probe
// names it.
func TestProbeFiles(t *testing.T) {
	t.Parallel()
	for name, below := range map[string]bool{
		"/etc/loxilb/probes/ca.pem": true, "/etc/loxilb/probes/a/b.pem": true,
		"/etc/ssl/ca.pem": false, "/etc/loxilb/probes": false, "/etc/loxilb/probes/../ca.pem": false, "/etc/loxilb/probesx/ca.pem": false, "/": false,
	} {
		b := apitest.New(t, func(o *httpapi.Options) { o.ProbeFiles = "/etc/loxilb/probes" })
		for _, r := range []struct{ path, body, field string }{
			{httpapi.BaseURL + "/config/loadbalancer", fmt.Sprintf(probedService, `,"probetype":"https","probeCA":"`+name+`"`), "serviceArguments.probeCA"},
			{endpointPath, `{"hostName":"31.31.31.1","probeType":"https","probePort":443,"probeCA":"` + name + `"}`, "probeCA"},
		} {
			w := b.Call("POST", r.path, r.body, "Content-Type", "application/json")
			if below {
				if w.Code != 200 {
					t.Errorf("%s: got %d %s, want code 200", name, w.Code, w.Body)
				}
				continue
			}
			want := fmt.Sprintf("%s %q is not below /etc/loxilb/probes, where files of probes are (allowed: a file below /etc/loxilb/probes)", r.field, name)
			if e := apitest.ProblemOf(t, w); e.Code != 400 || e.Field != r.field || e.Message != want {
				t.Errorf("the refusal is %+v, want code 400 about %s: %s", e, r.field, want)
			}
		}
	}
}

// TestIdleProbe checks that fields of a probe without monitoring give a warning.
func TestIdleProbe(t *testing.T) {
	t.Parallel()
	for arguments, noted := range map[string]bool{
		`,"probereq":"health"`: true, `,"proberesp":"ok"`: true, `,"probeport":80`: true,
		`,"probereq":"health","monitor":true`: false, `,"probereq":"health","probetype":"http"`: false,
		`,"probeTimeout":60,"probeRetries":2`: false, `,"probeTimeout":5`: true, ``: false, `,"onFail":"reset"`: true,
	} {
		b := apitest.New(t, nil)
		w := b.Call("POST", httpapi.BaseURL+"/config/loadbalancer", fmt.Sprintf(probedService, arguments), "Content-Type", "application/json")
		notes := strings.Join(w.Header().Values("Warning"), " ")
		if w.Code != 200 || strings.Contains(notes, "has no effect: the endpoints of 20.20.20.1:2020/tcp are not probed without monitor or probetype") != noted {
			t.Errorf("%s: got %d %s%s, want a note: %t", arguments, w.Code, w.Body, notes, noted)
		}
	}
}

// TestPanic checks that an endpoint that is down and gets connections in panic mode is shown so.
func TestPanic(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	b.MustPost(fmt.Sprintf(probedService, `,"monitor":true,"allDown":"panic"`))
	down := &report.EndpointHealth{State: report.HealthDown}
	down.Addr, down.Probe.Port = netip.MustParseAddr("31.31.31.1"), 5001
	b.Fake.Health = []*report.EndpointHealth{down}
	for _, available := range []bool{false, true} {
		b.Fake.Stats[apitest.DemoKey()] = report.ServiceStats{Endpoints: []report.EndpointStats{{Available: available}}}
		body := b.Call("GET", httpapi.BaseURL+"/config/loadbalancer/all", "").Body.String()
		if !strings.Contains(body, `"state":"inactive"`) || strings.Contains(body, `"panic":true`) != available {
			t.Errorf("takes connections: %t: %s", available, body)
		}
	}
}

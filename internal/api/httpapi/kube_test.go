package httpapi_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"loxilb/internal/api/httpapi"
	"loxilb/internal/control/status"
	"loxilb/internal/lb"
	"loxilb/test/apitest"
)

// P48 Each request of kube-loxilb for a service gets the answer that it expects: in each mode and
// with each option that needs neither a proxy nor SCTP, also when the service exists already or is
// gone
func TestKubeServices(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 63) + "_" + strings.Repeat("s", 253) + ":llb-inst0"
	for name, tc := range map[string]struct{ body, path, want string }{
		"plain":                 {apitest.Kube(""), "ip", " mode=default select=rr "},
		"onearm":                {apitest.Kube("", `"mode":0`, `"mode":1`), "ip", " mode=onearm "},
		"fullnat":               {apitest.Kube("", `"mode":0`, `"mode":2`), "ip", " mode=fullnat "},
		"dsr":                   {apitest.Kube("", `"mode":0`, `"mode":3`, `"sel":0`, `"sel":1`, `31000`, `80`), "ip", " mode=dsr select=hash "},
		"hostonearm":            {apitest.Kube("", `"mode":0`, `"mode":5`, `123.123.123.1`, `0.0.0.0`), "ip", "0.0.0.0:80/tcp mode=hostonearm "},
		"hostonearm with a VIP": {apitest.Kube("", `"mode":0`, `"mode":5`), "ip", "123.123.123.1:80/tcp mode=hostonearm "},
		"persist":               {apitest.Kube("", `"sel":0`, `"sel":3`), "ip", " select=persist "},
		"lc":                    {apitest.Kube("", `"sel":0`, `"sel":4`), "ip", " select=lc "},
		"BGP":                   {apitest.Kube("", `"BGP":false`, `"BGP":true`), "ip", " bgp=true"},
		"liveness":              {apitest.Kube(`,"probeRetries":3,"probeTimeout":10`, `"Monitor":false`, `"Monitor":true`), "ip", " probe-interval=10s probe-retries=3"},
		"probe": {
			apitest.Kube("", `"probetype":"","probeport":0,"probereq":"","proberesp":""`, `"probetype":"http","probeport":8080,"probereq":"/health","proberesp":"ok"`),
			"ip", " probetype=http probeport=8080 probereq=/health proberesp=ok",
		},
		"ping":           {apitest.Kube("", `"probetype":""`, `"probetype":"ping"`), "ip", " probetype=ping"},
		"no probe":       {apitest.Kube("", `"probetype":""`, `"probetype":"none"`), "ip", " probetype=none"},
		"PROXY protocol": {apitest.Kube(`,"proxyprotocolv2":true`), "ip", " proxy-protocol=true"},
		"secondary, sources": {
			apitest.Kube("", `"secondaryIPs":[],"allowedSources":[]`, `"secondaryIPs":[{"secondaryIP":"124.124.124.1"}],"allowedSources":[{"prefix":"10.0.0.0/8"}]`),
			"ip", " sources=10.0.0.0/8",
		},
		"privateCIDR":            {apitest.Kube("", `"privateIP":""`, `"privateIP":"192.168.80.9"`), "ip", " secips=192.168.80.9"},
		"privateCIDR, fullnat":   {apitest.Kube("", `"privateIP":""`, `"privateIP":"192.168.80.9"`, `"mode":0`, `"mode":2`), "ip", " snat=192.168.80.9"},
		"appendEPs":              {apitest.Kube(`,"oper":1`), "ip", " endpoints=10.1.0.1:31000,10.1.0.2:31000 "},
		"udp":                    {apitest.Kube("", `"tcp"`, `"udp"`), "ip", "/udp "},
		"ipv6":                   {apitest.Kube("", `123.123.123.1`, `3ffe:cafe::1`, `10.1.0.1`, `2001:db8::1`, `10.1.0.2`, `2001:db8::2`), "ip", "[3ffe:cafe::1]:80/tcp "},
		"ipv6to4":                {apitest.Kube("", `123.123.123.1`, `3ffe:cafe::1`), "ip", "[3ffe:cafe::1]:80/tcp "},
		"ipv6to4, fullnat":       {apitest.Kube("", `123.123.123.1`, `3ffe:cafe::1`, `"mode":0`, `"mode":2`), "ip", " mode=fullnat "},
		"ipv6to4, privateCIDR":   {apitest.Kube("", `123.123.123.1`, `3ffe:cafe::1`, `"privateIP":""`, `"privateIP":"192.168.80.9"`, `"mode":0`, `"mode":2`), "ip", " snat=192.168.80.9"},
		"egress":                 {apitest.Kube(`,"egress":true`, `123.123.123.1`, `0.0.0.0`), "ip", "0.0.0.0:80/tcp mode=default "},
		"egress with an address": {apitest.Kube(`,"egress":true`), "ip", " egress=true "},
		"long name":              {apitest.Kube("", "default_web:llb-inst0", long), "name", " name=" + long},
		"empty options":          {apitest.Kube(`,"proxyprotocolv2":false,"mtls_frontend":{},"mtls_backend":{"verify":false}`), "ip", " mode=default "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const token = "a token that never ends"
			b := apitest.New(t, func(o *httpapi.Options) { o.Token = token })
			call := func(method, path, body string) *httptest.ResponseRecorder {
				return b.Call(method, path, body, "Content-Type", "application/json", "Authorization", token)
			}
			if w := call("POST", httpapi.BaseURL+"/config/loadbalancer", tc.body); !apitest.KubeChanged(w) {
				t.Fatalf("POST %s: %d %s", tc.body, w.Code, w.Body)
			}
			// The same requests after a restart of kube-loxilb: an error with the word "exist" is
			// success.
			if w := call("POST", httpapi.BaseURL+"/config/loadbalancer", tc.body); !apitest.KubeChanged(w) && !strings.Contains(w.Body.String(), "exist") {
				t.Errorf("POST again: %d %s", w.Code, w.Body)
			}
			var s lb.Service
			for s = range b.Store.Services.All(b.Store.Snapshot()) {
				if !strings.Contains(s.String()+" ", tc.want) || !s.Managed || s.IdleTimeout.Seconds() != 1800 {
					t.Errorf("%s is stored as %s", tc.want, s)
				}
			}
			w := call("GET", httpapi.BaseURL+"/config/loadbalancer/all", "")
			if ct := w.Header().Get("Content-Type"); w.Code != 200 || ct != "application/json" || !strings.Contains(w.Body.String(), `"name":"`+s.Name+`"`) {
				t.Errorf("GET: %d %s %s", w.Code, ct, w.Body)
			}
			path := httpapi.BaseURL + "/config/loadbalancer/externalipaddress/" + s.VIP.String() + "/port/80/protocol/" + s.Protocol.String() + "?bgp=true&block=0"
			if tc.path == "name" {
				path = httpapi.BaseURL + "/config/loadbalancer/name/" + s.Name
			}
			for range 2 { // the second time it no longer exists
				if w := call("DELETE", path, tc.body); !apitest.KubeChanged(w) {
					t.Errorf("DELETE %s: %d %s", path, w.Code, w.Body)
				}
			}
			if n := b.Store.Services.Len(b.Store.Snapshot()); n != 0 {
				t.Errorf("%d services are left", n)
			}
		})
	}
}

// TestKubeServicesRefused checks that a service with an unsupported part is refused with a sentence
// that names it: kube-loxilb shows it in the events of the service.
func TestKubeServicesRefused(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		apitest.Kube("", `"sel":0`, `"sel":5`):           `"n2" is not part of this build`,
		apitest.Kube("", `"sel":0`, `"sel":6`):           `"n2det" is not part of this build`,
		apitest.Kube("", `"sel":0`, `"sel":7`):           `"n3" is for GTP-U over UDP`,
		apitest.Kube("", `"mode":0`, `"mode":4`):         `"fullproxy" is not part of this build`,
		apitest.Kube(`,"mtls_frontend":{"mode":"must"}`): `unknown property "mtls_frontend"`,
	} {
		b := apitest.New(t, nil)
		if w := b.Post(body); w.Code/100 == 2 || !strings.Contains(apitest.ProblemOf(t, w).Message, want) {
			t.Errorf("%s: %d %s, want %s", body, w.Code, w.Body, want)
		}
	}
}

// TestKubeLiveness checks that GET of the base path succeeds, which kube-loxilb uses as its
// liveness check; with or without a slash, and without a token.
func TestKubeLiveness(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, func(o *httpapi.Options) { o.Token = "a token" })
	for _, path := range []string{httpapi.BaseURL, httpapi.BaseURL + "/"} {
		if w := b.Call("GET", path, ""); w.Code == 0 || w.Code >= 500 {
			t.Errorf("GET %s: %d %s", path, w.Code, w.Body)
		}
	}
}

// TestKubeEgress checks egress addresses: a rule is created with all its members, created again
// after a restart of kube-loxilb, and deleted by its source alone, also if it does not exist.
func TestKubeEgress(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	const at = httpapi.BaseURL + "/config/firewall"
	const rule = `{"ruleArguments":{"sourceIP":"10.244.1.5/32","destinationIP":"","minSourcePort":0,"maxSourcePort":0,"minDestinationPort":0,` +
		`"maxDestinationPort":0,"protocol":0,"portName":"","preference":0},` +
		`"opts":{"drop":false,"trap":false,"redirect":false,"redirectPortName":"","allow":false,"fwMark":0,"record":false,"doSnat":true,` +
		`"toIP":"123.123.123.192","toPort":0,"onDefault":true,"counter":""}}`
	post := func() *httptest.ResponseRecorder {
		return b.Call("POST", at, rule, "Content-Type", "application/json")
	}
	if w := post(); !apitest.KubeChanged(w) {
		t.Fatalf("got %d %s, want an answer that reports a change", w.Code, w.Body)
	}
	if w := post(); w.Code != 409 || apitest.ProblemOf(t, w).Result != "fwrule-exists error" {
		t.Errorf("the repeated request is answered %d %s", w.Code, w.Body)
	}
	if got := b.Store.Rules.Len(b.Store.Snapshot()); got != 1 {
		t.Errorf("%d rules", got)
	}
	for range 2 {
		if w := b.Call("DELETE", at+"?sourceIP=10.244.1.5%2F32", ""); !apitest.KubeChanged(w) {
			t.Errorf("DELETE: %d %s", w.Code, w.Body)
		}
	}
	if got := b.Store.Rules.Len(b.Store.Snapshot()); got != 0 {
		t.Errorf("%d rules are left", got)
	}
}

// TestKubeWithoutBGP checks that without --bgp objects of BGP are refused at once, in JSON:
// kube-loxilb logs that, and continues with its services. Deleting them succeeds. Metadata of pods
// is refused, too.
func TestKubeWithoutBGP(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	for request, code := range map[string]int{
		`POST /config/bgp/global {"localAs":64512,"routerId":"10.0.0.1","setNextHopSelf":true,"listenPort":179}`:          501,
		`POST /config/bgp/neigh {"ipAddress":"10.0.0.2","remoteAs":64513,"remotePort":179,"setMultiHop":false}`:           501,
		`DELETE /config/bgp/neigh/10.0.0.2?remoteAs=64513 `:                                                               200,
		`POST /config/bgp/policy/definedsets/prefix {"name":"ps1","prefixList":[{"ipPrefix":"10.0.0.0/8"}]}`:              501,
		`DELETE /config/bgp/policy/definedsets/prefix/ps1 `:                                                               200,
		`POST /config/bgp/policy/definitions {"name":"p1","statement":[]}`:                                                501,
		`DELETE /config/bgp/policy/definitions/p1 `:                                                                       200,
		`POST /config/bgp/policy/apply {"ipAddress":"10.0.0.2","policyType":"import","policies":["p1"],"routeAction":""}`: 501,
		`DELETE /config/bgp/policy/apply {"ipAddress":"10.0.0.2","policyType":"import","policies":["p1"]}`:                200,
		`POST /config/k8smeta {"pods":[],"services":[],"nodes":[]}`:                                                       501,
	} {
		word := strings.SplitN(request, " ", 3)
		w := b.Call(word[0], httpapi.BaseURL+word[1], word[2], "Content-Type", "application/json")
		if w.Code != code || code == 501 && apitest.ProblemOf(t, w).Message == "" {
			t.Errorf("%s: got %d %s, want code %d, and a sentence with 501", request, w.Code, w.Body, code)
		}
		if code == 501 && strings.Contains(request, "bgp") && !strings.Contains(w.Body.String(), "BGP is off: start loxilb with --bgp") {
			t.Errorf(`%s: got %s, want code != 501 or no "bgp" in request or "BGP is off: start loxilb with --bgp" in the body`,
				request, w.Body)
		}
	}
}

// TestConditions checks that a partially supported request succeeds, and is reported as a condition
// of the service.
func TestConditions(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	b.MustPost(apitest.Kube(`,"egress":true`, `"BGP":false`, `"BGP":true`, `123.123.123.1`, `0.0.0.0`))
	b.MustPost(apitest.Demo)
	list := b.List()
	if got := list[0].Status.Conditions; len(got) != 2 || got[0].Type != "BGP" || got[1].Type != "Egress" || list[0].Status.Error != "" {
		t.Errorf(`got %+v, want 2 elements, got[0].Type == "BGP", got[1].Type == "Egress", no list[0].Status.Error`,
			list[0].Status)
	}
	if got := list[1].Status.Conditions; len(got) != 0 {
		t.Errorf("got status %+v, want no error", list[1].Status)
	}
	b.Fake.Update(func(w *status.Writer) { w.Want(status.ID{Kind: "service", Key: "0.0.0.0:80/tcp"}, 1) })
	for name, id := range map[string]string{"0.0.0.0:80/tcp": "BGP", "default_web:llb-inst0": "Egress"} {
		if w := b.Call("GET", httpapi.BaseURL+"/status/objects?name="+name, ""); !strings.Contains(w.Body.String(), `"type":"`+id+`"`) {
			t.Errorf("%s: got %s, want an object of type %q", name, w.Body, id)
		}
	}
}

package httpapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"loxilb/internal/control/status"
	"loxilb/internal/lb"
)

// kubeService is what kube-loxilb sends for a port of a Kubernetes service, with all its members.
// $ARGS stands for those that it writes only if they are set.
const kubeService = `{"serviceArguments":{"externalIP":"123.123.123.1","privateIP":"","port":80,"protocol":"tcp","sel":0,"mode":0,"BGP":false,"Monitor":false,` +
	`"inactiveTimeOut":1800,"block":0,"managed":true,"probetype":"","probeport":0,"probereq":"","proberesp":"","name":"default_web:llb-inst0"$ARGS},` +
	`"secondaryIPs":[],"allowedSources":[],` +
	`"endpoints":[{"endpointIP":"10.1.0.1","targetPort":31000,"weight":1,"state":"","counter":""},{"endpointIP":"10.1.0.2","targetPort":31000,"weight":1,"state":"","counter":""}]}`

// kubeChanged is all that kube-loxilb takes for success.
func kubeChanged(w *httptest.ResponseRecorder) bool {
	return w.Code == http.StatusOK && strings.TrimSpace(w.Body.String()) == `{"result":"Success"}`
}

// kube is kubeService with other values, and with members that it has only when they are set.
func kube(args string, replaced ...string) string {
	return strings.NewReplacer(append(replaced, "$ARGS", args)...).Replace(kubeService)
}

// P48 Each request of kube-loxilb for a service gets the answer that it expects: in each mode and
// with each option that needs neither a proxy nor SCTP, also when the service exists already or is
// gone
func TestKubeServices(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 63) + "_" + strings.Repeat("s", 253) + ":llb-inst0"
	for name, tc := range map[string]struct{ body, path, want string }{
		"plain":                  {kube(""), "ip", " mode=default select=rr "},
		"onearm":                 {kube("", `"mode":0`, `"mode":1`), "ip", " mode=onearm "},
		"fullnat":                {kube("", `"mode":0`, `"mode":2`), "ip", " mode=fullnat "},
		"dsr":                    {kube("", `"mode":0`, `"mode":3`, `"sel":0`, `"sel":1`, `31000`, `80`), "ip", " mode=dsr select=hash "},
		"hostonearm":             {kube("", `"mode":0`, `"mode":5`, `123.123.123.1`, `0.0.0.0`), "ip", "0.0.0.0:80/tcp mode=hostonearm "},
		"persist":                {kube("", `"sel":0`, `"sel":3`), "ip", " select=persist "},
		"lc":                     {kube("", `"sel":0`, `"sel":4`), "ip", " select=lc "},
		"BGP":                    {kube("", `"BGP":false`, `"BGP":true`), "ip", " bgp=true"},
		"liveness":               {kube(`,"probeRetries":3,"probeTimeout":10`, `"Monitor":false`, `"Monitor":true`), "ip", " probe-interval=10s probe-retries=3"},
		"probe":                  {kube("", `"probetype":"","probeport":0,"probereq":"","proberesp":""`, `"probetype":"http","probeport":8080,"probereq":"/health","proberesp":"ok"`), "ip", " probetype=http probeport=8080 probereq=/health proberesp=ok"},
		"ping":                   {kube("", `"probetype":""`, `"probetype":"ping"`), "ip", " probetype=ping"},
		"no probe":               {kube("", `"probetype":""`, `"probetype":"none"`), "ip", " probetype=none"},
		"secondary, sources":     {kube("", `"secondaryIPs":[],"allowedSources":[]`, `"secondaryIPs":[{"secondaryIP":"124.124.124.1"}],"allowedSources":[{"prefix":"10.0.0.0/8"}]`), "ip", " sources=10.0.0.0/8"},
		"privateCIDR":            {kube("", `"privateIP":""`, `"privateIP":"192.168.80.9"`), "ip", " secips=192.168.80.9"},
		"privateCIDR, fullnat":   {kube("", `"privateIP":""`, `"privateIP":"192.168.80.9"`, `"mode":0`, `"mode":2`), "ip", " snat=192.168.80.9"},
		"appendEPs":              {kube(`,"oper":1`), "ip", " endpoints=10.1.0.1:31000,10.1.0.2:31000 "},
		"udp":                    {kube("", `"tcp"`, `"udp"`), "ip", "/udp "},
		"ipv6":                   {kube("", `123.123.123.1`, `3ffe:cafe::1`, `10.1.0.1`, `2001:db8::1`, `10.1.0.2`, `2001:db8::2`), "ip", "[3ffe:cafe::1]:80/tcp "},
		"ipv6to4":                {kube("", `123.123.123.1`, `3ffe:cafe::1`), "ip", "[3ffe:cafe::1]:80/tcp "},
		"ipv6to4, fullnat":       {kube("", `123.123.123.1`, `3ffe:cafe::1`, `"mode":0`, `"mode":2`), "ip", " mode=fullnat "},
		"ipv6to4, privateCIDR":   {kube("", `123.123.123.1`, `3ffe:cafe::1`, `"privateIP":""`, `"privateIP":"192.168.80.9"`, `"mode":0`, `"mode":2`), "ip", " snat=192.168.80.9"},
		"egress":                 {kube(`,"egress":true`, `123.123.123.1`, `0.0.0.0`), "ip", "0.0.0.0:80/tcp mode=default "},
		"egress with an address": {kube(`,"egress":true`), "ip", " egress=true "},
		"long name":              {kube("", "default_web:llb-inst0", long), "name", " name=" + long},
		"what is not asked for":  {kube(`,"proxyprotocolv2":false,"mtls_frontend":{},"mtls_backend":{"verify":false}`), "ip", " mode=default "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const token = "a token that never ends"
			b := newBench(t, func(o *Options) { o.Token = token })
			call := func(method, path, body string) *httptest.ResponseRecorder {
				return b.call(method, path, body, "Content-Type", "application/json", "Authorization", token)
			}
			if w := call("POST", BaseURL+"/config/loadbalancer", tc.body); !kubeChanged(w) {
				t.Fatalf("POST %s: %d %s", tc.body, w.Code, w.Body)
			}
			// The same again, after a start of kube-loxilb: an error that says "exist" is success.
			if w := call("POST", BaseURL+"/config/loadbalancer", tc.body); !kubeChanged(w) && !strings.Contains(w.Body.String(), "exist") {
				t.Errorf("POST again: %d %s", w.Code, w.Body)
			}
			var s lb.Service
			for s = range b.store.Services.All(b.store.Snapshot()) {
				if !strings.Contains(s.String()+" ", tc.want) || !s.Managed || s.IdleTimeout.Seconds() != 1800 {
					t.Errorf("%s is stored as %s", tc.want, s)
				}
			}
			w := call("GET", BaseURL+"/config/loadbalancer/all", "")
			if ct := w.Header().Get("Content-Type"); w.Code != 200 || ct != "application/json" || !strings.Contains(w.Body.String(), `"name":"`+s.Name+`"`) {
				t.Errorf("GET: %d %s %s", w.Code, ct, w.Body)
			}
			path := BaseURL + "/config/loadbalancer/externalipaddress/" + s.VIP.String() + "/port/80/protocol/" + s.Protocol.String() + "?bgp=true&block=0"
			if tc.path == "name" {
				path = BaseURL + "/config/loadbalancer/name/" + s.Name
			}
			for range 2 { // the second time it is gone
				if w := call("DELETE", path, tc.body); !kubeChanged(w) {
					t.Errorf("DELETE %s: %d %s", path, w.Code, w.Body)
				}
			}
			if n := b.store.Services.Len(b.store.Snapshot()); n != 0 {
				t.Errorf("%d services are left", n)
			}
		})
	}
}

// A service that asks for what is not there is refused in a sentence that names it: kube-loxilb
// says it in the events of the service.
func TestKubeServicesRefused(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		kube("", `"sel":0`, `"sel":5`):           `"n2" is not part of this build`,
		kube("", `"sel":0`, `"sel":6`):           `"n2det" is not part of this build`,
		kube("", `"sel":0`, `"sel":7`):           `"n3" is not part of this build`,
		kube("", `"mode":0`, `"mode":4`):         `"fullproxy" is not part of this build`,
		kube("", `"tcp"`, `"sctp"`):              `"sctp" is not part of this build`,
		kube(`,"proxyprotocolv2":true`):          `proxyprotocolv2 "true" is not part of this build`,
		kube(`,"mtls_frontend":{"mode":"must"}`): `there is no property "mtls_frontend"`,
	} {
		b := newBench(t, nil)
		if w := b.post(body); w.Code/100 == 2 || !strings.Contains(problemOf(t, w).Message, want) {
			t.Errorf("%s: %d %s, want %s", body, w.Code, w.Body, want)
		}
	}
}

// It lives as long as it answers GET of the base, whatever that says; with or without a slash, and
// without a token.
func TestKubeLiveness(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(o *Options) { o.Token = "a token" })
	for _, path := range []string{BaseURL, BaseURL + "/"} {
		if w := b.call("GET", path, ""); w.Code == 0 || w.Code >= 500 {
			t.Errorf("GET %s: %d %s", path, w.Code, w.Body)
		}
	}
}

// Egress addresses: a rule is made with all its members, made again after a start of kube-loxilb,
// and deleted by its source alone, also when it is gone.
func TestKubeEgress(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	const at = BaseURL + "/config/firewall"
	const rule = `{"ruleArguments":{"sourceIP":"10.244.1.5/32","destinationIP":"","minSourcePort":0,"maxSourcePort":0,"minDestinationPort":0,"maxDestinationPort":0,"protocol":0,"portName":"","preference":0},` +
		`"opts":{"drop":false,"trap":false,"redirect":false,"redirectPortName":"","allow":false,"fwMark":0,"record":false,"doSnat":true,"toIP":"123.123.123.192","toPort":0,"onDefault":true,"counter":""}}`
	post := func() *httptest.ResponseRecorder {
		return b.call("POST", at, rule, "Content-Type", "application/json")
	}
	if w := post(); !kubeChanged(w) {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if w := post(); w.Code != 409 || problemOf(t, w).Result != "fwrule-exists error" {
		t.Errorf("again: %d %s", w.Code, w.Body)
	}
	if got := b.store.Rules.Len(b.store.Snapshot()); got != 1 {
		t.Errorf("%d rules", got)
	}
	for range 2 {
		if w := b.call("DELETE", at+"?sourceIP=10.244.1.5%2F32", ""); !kubeChanged(w) {
			t.Errorf("DELETE: %d %s", w.Code, w.Body)
		}
	}
	if got := b.store.Rules.Len(b.store.Snapshot()); got != 0 {
		t.Errorf("%d rules are left", got)
	}
}

// What there is no BGP for is answered at once, in JSON, and not with success: kube-loxilb logs it,
// and goes on with its services. Metadata of pods is not taken either.
func TestKubeWithoutBGP(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	for request, code := range map[string]int{
		`POST /config/bgp/global {"localAs":64512,"routerId":"10.0.0.1","setNextHopSelf":true,"listenPort":179}`:          501,
		`POST /config/bgp/neigh {"ipAddress":"10.0.0.2","remoteAs":64513,"remotePort":179,"setMultiHop":false}`:           501,
		`DELETE /config/bgp/neigh/10.0.0.2?remoteAs=64513 `:                                                               501,
		`POST /config/bgp/policy/definedsets/prefix {"name":"ps1","prefixList":[{"ipPrefix":"10.0.0.0/8"}]}`:              501,
		`DELETE /config/bgp/policy/definedsets/prefix/ps1 `:                                                               501,
		`POST /config/bgp/policy/definitions {"name":"p1","statement":[]}`:                                                501,
		`DELETE /config/bgp/policy/definitions/p1 `:                                                                       501,
		`POST /config/bgp/policy/apply {"ipAddress":"10.0.0.2","policyType":"import","policies":["p1"],"routeAction":""}`: 501,
		`DELETE /config/bgp/policy/apply {"ipAddress":"10.0.0.2","policyType":"import","policies":["p1"]}`:                501,
		`POST /config/k8smeta {"pods":[],"services":[],"nodes":[]}`:                                                       501,
	} {
		word := strings.SplitN(request, " ", 3)
		w := b.call(word[0], BaseURL+word[1], word[2], "Content-Type", "application/json")
		if w.Code != code || problemOf(t, w).Message == "" {
			t.Errorf("%s: %d %s", request, w.Code, w.Body)
		}
	}
}

// What works and is not all that was asked for is a condition of the service, which fails nothing.
func TestConditions(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.mustPost(kube(`,"egress":true`, `"BGP":false`, `"BGP":true`, `123.123.123.1`, `0.0.0.0`))
	b.mustPost(demo)
	list := b.list()
	if got := list[0].Status.Conditions; len(got) != 2 || got[0].Type != "BGP" || got[1].Type != "Egress" || list[0].Status.Error != "" {
		t.Errorf("%+v", list[0].Status)
	}
	if got := list[1].Status.Conditions; len(got) != 0 {
		t.Errorf("%+v", list[1].Status)
	}
	b.fake.Update(func(w *status.Writer) { w.Want(status.ID{Kind: "service", Key: "0.0.0.0:80/tcp"}, 1) })
	for name, id := range map[string]string{"0.0.0.0:80/tcp": "BGP", "default_web:llb-inst0": "Egress"} {
		if w := b.call("GET", BaseURL+"/status/objects?name="+name, ""); !strings.Contains(w.Body.String(), `"type":"`+id+`"`) {
			t.Errorf("%s: %s", name, w.Body)
		}
	}
}

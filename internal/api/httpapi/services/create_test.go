package services_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"loxilb/internal/api/httpapi"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/control/desired"
	"loxilb/internal/control/status"
	"loxilb/test/apitest"
)

func TestCreate(t *testing.T) {
	t.Parallel()
	const eps = `"endpoints":[{"endpointIP":"10.0.0.1","targetPort":8080,"weight":3}]`
	for name, tc := range map[string]struct{ body, want string }{
		"demo": {apitest.Demo, "20.20.20.1:2020/tcp mode=default select=rr endpoints=31.31.31.1:5001,32.32.32.1:5001"},
		"case": {
			`{"SERVICEARGUMENTS":{"ExternalIp":"20.20.20.1","Port":80,"Protocol":"udp","BGP":false,"Monitor":false},` + eps + `}`,
			"20.20.20.1:80/udp mode=default select=rr endpoints=10.0.0.1:8080:3",
		},
		"numbers": {
			`{"serviceArguments":{"externalIP":"20.20.20.1","port":80,"protocol":"tcp","sel":2,"mode":0},` + eps + `}`,
			"20.20.20.1:80/tcp mode=default select=priority endpoints=10.0.0.1:8080:3",
		},
		"words": {
			`{"serviceArguments":{"externalIP":"20.20.20.1","port":80,"protocol":"tcp","sel":"priority","mode":"default"},` + eps + `}`,
			"20.20.20.1:80/tcp mode=default select=priority endpoints=10.0.0.1:8080:3",
		},
		"select": {
			`{"serviceArguments":{"externalIP":"20.20.20.1","port":80,"protocol":"tcp","select":"priority"},` + eps + `}`,
			"20.20.20.1:80/tcp mode=default select=priority endpoints=10.0.0.1:8080:3",
		},
		"all that is stored": {
			`{"serviceArguments":{"externalIP":"2001:db8::1","port":80,"protocol":"tcp","inactiveTimeOut":300,"name":"web","managed":true},
			  "endpoints":[{"endpointIP":"2001:db8:1::1","targetPort":8080,"weight":0,"state":"active","counter":"1:2"}]}`,
			"[2001:db8::1]:80/tcp mode=default select=rr endpoints=[2001:db8:1::1]:8080:0 idle=300s managed=true name=web",
		},
		"range, mark and sources": {
			`{"serviceArguments":{"externalIP":"20.20.20.1","port":80,"portMax":90,"protocol":"tcp","block":7},"allowedSources":[{"prefix":"10.1.2.3"},{"prefix":"10.0.0.1/8"},{"prefix":"10.0.0.0/8"}],
			  "endpoints":[{"endpointIP":"10.0.0.1","targetPort":8080,"targetPortMax":8090,"weight":1}]}`,
			"20.20.20.1:80-90/tcp/mark=7 mode=default select=rr endpoints=10.0.0.1:8080-8090 sources=10.0.0.0/8,10.1.2.3/32",
		},
		"defaults that say nothing": {
			`{"serviceArguments":{"externalIP":"20.20.20.1","privateIP":"","port":80,"portMax":80,"protocol":"tcp","sel":null,"bgp":false,
			  "probeTimeout":60,"probeRetries":2,"probetype":"tcp","security":0,"block":0,"oper":0,"host":"","egress":false},
			  "secondaryIPs":[],"allowedSources":null,` + eps + `}`,
			"20.20.20.1:80/tcp mode=default select=rr endpoints=10.0.0.1:8080:3 probetype=tcp probe-interval=1m0s probe-retries=2",
		},
		"what kube-loxilb sends": {
			`{"serviceArguments":{"externalIP":"20.20.20.1","privateIP":"","port":80,"protocol":"tcp","sel":0,"mode":0,"BGP":false,"Monitor":true,
			  "inactiveTimeOut":1800,"block":0,"managed":true,"probetype":"","probeport":0,"probereq":"","proberesp":"","name":"ns_svc:llb-inst0"},
			  "secondaryIPs":null,"allowedSources":null,` + eps + `}`,
			"20.20.20.1:80/tcp mode=default select=rr endpoints=10.0.0.1:8080:3 idle=1800s managed=true name=ns_svc:llb-inst0 monitor=true",
		},
		"what a newer client does not ask for": {
			`{"serviceArguments":{"externalIP":"20.20.20.1","port":80,"protocol":"tcp","mtls_frontend":{"mode":"","cn":[]},"mtls_backend":null,"colour":0.0},"zone":"",` +
				`"endpoints":[{"endpointIP":"10.0.0.1","targetPort":8080,"weight":3,"nodeName":"","ready":false}]}`,
			"20.20.20.1:80/tcp mode=default select=rr endpoints=10.0.0.1:8080:3",
		},
		"a cloud's address": {
			`{"serviceArguments":{"externalIP":"20.20.20.1","privateIP":"10.9.9.9","port":80,"protocol":"tcp"},` + eps + `}`,
			"20.20.20.1:80/tcp mode=default select=rr endpoints=10.0.0.1:8080:3 secips=10.9.9.9",
		},
		"a cloud's address as source": {
			`{"serviceArguments":{"externalIP":"20.20.20.1","privateIP":"10.9.9.9","port":80,"protocol":"tcp","mode":2},` + eps + `}`,
			"20.20.20.1:80/tcp mode=fullnat select=rr endpoints=10.0.0.1:8080:3 secips=10.9.9.9 snat=10.9.9.9",
		},
		"a cloud's address beside others": {
			`{"serviceArguments":{"externalIP":"20.20.20.1","privateIP":"10.9.9.9","port":80,"protocol":"tcp","mode":1,"snatIPs":["10.9.9.8"]},` +
				`"secondaryIPs":[{"secondaryIP":"10.9.9.9"}],` +
				eps + `}`,
			"20.20.20.1:80/tcp mode=onearm select=rr endpoints=10.0.0.1:8080:3 secips=10.9.9.9 snat=10.9.9.8",
		},
		"a cloud's address of another IP version": {
			`{"serviceArguments":{"externalIP":"2001:db8::1","privateIP":"10.9.9.9","port":80,"protocol":"tcp","mode":3},` +
				`"endpoints":[{"endpointIP":"2001:db8::2","targetPort":80,"weight":1}]}`,
			"[2001:db8::1]:80/tcp mode=dsr select=rr endpoints=[2001:db8::2]:80",
		},
		"a probe in full": {
			`{"serviceArguments":{"externalIP":"20.20.20.1","port":80,"protocol":"tcp","probetype":"https","probeport":443,"probereq":"/x","proberesp":"ok",
			  "probeInterval":"500ms","probeTimeout":1,"probeWait":"200ms","probeRetries":1,"probeRise":4,"probeHost":"a.example","probeStatuses":["200-299","404"],
			  "probeCA":"/ca","probeCert":"/cert","probeKey":"/key","allDown":"panic"},` + eps + `}`,
			"20.20.20.1:80/tcp mode=default select=rr endpoints=10.0.0.1:8080:3 all-down=panic probetype=https probeport=443 probereq=/x proberesp=ok " +
				"probe-interval=500ms probe-wait=200ms probe-retries=1 probe-rise=4 probe-host=a.example probe-statuses=200-299,404 probe-ca=/ca probe-cert=/cert probe-key=/key",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := apitest.New(t, nil)
			b.MustPost(tc.body)
			var got []string
			for s := range b.Store.Services.All(b.Store.Snapshot()) {
				got = append(got, s.String())
			}
			if diff := cmp.Diff([]string{tc.want}, got); diff != "" {
				t.Errorf("the result differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRefuse(t *testing.T) {
	t.Parallel()
	arg := func(s string) string { // in place of the usual ones of the same name
		rest := ""
		for _, usual := range []string{`,"externalIP":"20.20.20.1"`, `,"port":80`, `,"protocol":"tcp"`} {
			if name, _, _ := strings.Cut(usual, ":"); !strings.Contains(s, name+":") {
				rest += usual
			}
		}
		return `{"serviceArguments":{` + strings.TrimPrefix(rest+s, ",") + `},"endpoints":[{"endpointIP":"10.0.0.1","targetPort":8080,"weight":1}]}`
	}
	ep := func(s string) string {
		return `{"serviceArguments":{"externalIP":"20.20.20.1","port":80,"protocol":"tcp"},"endpoints":[{"endpointIP":"10.0.0.9","targetPort":8080,"weight":1},` + s + `]}`
	}
	for _, tc := range []struct{ body, field, message string }{
		{``, "", "the body is empty: a JSON object is expected"},
		{`{"serviceArguments":`, "", "the body is not JSON (line 1, column 20): it ends too early"},
		{"{\n \"lbAttr\": [\n  {,}]}", "", "the body is not JSON (line 3, column 4): invalid character ',' looking for beginning of object key string"},
		{apitest.Demo + `{}`, "", "there is text after the end of the object"},
		{`[]`, "body", `body "array" is of the wrong type (line 1, column 1) (allowed: an object)`},
		{`{}`, "serviceArguments", `serviceArguments is missing`},
		{`{"lbAttr":[],"endpoints":[]}`, "", "lbAttr cannot be combined with another property"},
		{arg(`,"colour":"red"`), "colour", `unknown property "colour"`},
		{arg(`,"name":5`), "serviceArguments.name", `serviceArguments.name "number" is of the wrong type`},
		{arg(`,"port":80.5`), "serviceArguments.port", `"number 80.5" is of the wrong type`},
		{arg(`,"port":"80"`), "serviceArguments.port", `(allowed: a whole number)`},
		{arg(`,"bgp":1`), "serviceArguments.bgp", `(allowed: true or false)`},
		{arg(`,"port":0`), "serviceArguments.port", `serviceArguments.port "0" is zero (allowed: 1 to 65535)`},
		{arg(`,"port":65536`), "serviceArguments.port", `serviceArguments.port "65536" is out of range (allowed: 1 to 65535)`},
		{arg(`,"port":-1`), "serviceArguments.port", `"-1" is out of range`},
		{arg(`,"externalIP":"20.20.20"`), "serviceArguments.externalIP", `"20.20.20" is not an IP address`},
		{arg(`,"externalIP":""`), "serviceArguments.externalIP", `serviceArguments.externalIP is missing (allowed`},
		{arg(`,"externalIP":"0.0.0.0"`), "serviceArguments.externalIP", `is every local address, which only mode hostonearm`},
		{arg(`,"externalIP":"2001:db8::1","mode":3`), "endpoints[0].endpointIP", `is IPv4, and the VIP, which it answers as in mode dsr, is IPv6`},
		{arg(`,"protocol":"quic"`), "serviceArguments.protocol", `"quic" is not known`},
		{arg(`,"protocol":"icmp"`), "serviceArguments.port", `"80" is set, but icmp has no ports`},
		{arg(`,"sel":"fastest"`), "serviceArguments.sel", `"fastest" is not known`},
		{
			arg(`,"sel":5`), "serviceArguments.sel",
			`"n2" is not part of this build: loxilb does not read NGAP messages; balance their associations with --sctp --select=persist (allowed: rr, hash, ` +
				`priority, persist, lc, n3, random or quic)`,
		},
		{arg(`,"sel":8`), "serviceArguments.sel", `"8" is not known`},
		{arg(`,"persistTimeout":60`), "serviceArguments.persistTimeout", `"60s" is set, but select is rr`},
		{arg(`,"sel":3,"persistTimeout":90000`), "serviceArguments.persistTimeout", `"90000" is out of range`},
		{arg(`,"sel":3,"persistPrefix":64`), "serviceArguments.persistPrefix", `"64" is longer than an address of the VIP's family`},
		{arg(`,"sel":true`), "serviceArguments.sel", `"true" is not known`},
		{arg(`,"sel":"rr","select":"priority"`), "serviceArguments.sel", `differs from sel`},
		{
			arg(`,"mode":"fullproxy"`), "serviceArguments.mode",
			`"fullproxy" is not part of this build: let HAProxy or Envoy listen at the endpoints of a service of mode default (allowed: default, onearm, fullnat, dsr, hostonearm or auto)`,
		},
		{arg(`,"mode":4`), "serviceArguments.mode", `"fullproxy" is not part of this build`},
		{arg(`,"mode":3`), "endpoints[0].targetPort", `"8080" is not the service's, and mode dsr keeps ports (allowed: 80, or mode auto or onearm for other ports, as node ports)`},
		{arg(`,"inactiveTimeOut":86401`), "serviceArguments.inactiveTimeOut", `"86401" is out of range`},
		{arg(`,"inactiveTimeOut":-1`), "serviceArguments.inactiveTimeOut", `"-1" is out of range`},
		{arg(`,"inactiveTimeOut":9223372036854775807`), "serviceArguments.inactiveTimeOut", `is out of range`},
		{arg(`,"name":"a/b"`), "serviceArguments.name", `has a slash`},
		{arg(`,"privateIP":"10.1.1"`), "serviceArguments.privateIP", `"10.1.1" is not an IP address`},
		{
			strings.TrimSuffix(arg(`,"privateIP":"10.1.1.1"`), "}") + `,"secondaryIPs":[{"secondaryIP":"1.1.1.1"},{"secondaryIP":"1.1.1.2"},{"secondaryIP":"1.1.1.3"}]}`,
			"serviceArguments.privateIP", `"10.1.1.1" is one address too many, together with those of secondaryIPs`,
		},
		{arg(`,"colour":null,"shape":[{"edges":[0,{"n":1}]}]`), "shape", `unknown property "shape"`},
		{arg(`,"colour":null` + strings.Repeat(" ", rest.MaxUnknown)), "colour", `unknown property "colour"`}, // too long to check all of them
		{ep(`{"endpointIP":"10.0.0.1","targetPort":8080,"weight":1,"wieght":3}`), "wieght", `unknown property "wieght"`},
		{arg(`,"portMax":70000`), "serviceArguments.portMax", `"70000" is out of range`},
		{
			`{"serviceArguments":{"externalIP":"20.20.20.1","port":80,"portMax":90,"protocol":"tcp"},"endpoints":[{"endpointIP":"10.0.0.1",` +
				`"targetPort":8080,"targetPortMax":8089,"weight":1}]}`,
			"endpoints[0].targetPortMax",
			`"8089" does not make as many ports as the service has (allowed: 8090, or 0 (all go to port 8080))`,
		},
		{`{"lbAttr":[` + arg(`,"portMax":90`) + `,` + arg(`,"port":90,"portMax":91`) + `]}`, "serviceArguments.portMax", `"90-91" overlaps with service 20.20.20.1:80-90/tcp`},
		{arg(`,"sel":6`), "serviceArguments.sel", `"n2det" is not part of this build`},
		{arg(`,"sel":7`), "serviceArguments.sel", `"n3" is for GTP-U over UDP, and the service is of tcp (allowed: another algorithm, or --udp=2152)`},
		{arg(`,"probetype":"telnet"`), "serviceArguments.probetype", `"telnet" is not known (allowed: auto, tcp, udp, sctp, ping,`},
		{arg(`,"probeport":-1`), "serviceArguments.probeport", `"-1" is out of range`},
		{arg(`,"probetype":"ping","probeport":81`), "serviceArguments.probeport", `"81" is set, but probe type ping has no port (allowed: 0)`},
		{arg(`,"probereq":"` + strings.Repeat("x", 3<<20) + `"`), "serviceArguments.probereq", `is too long`},
		{arg(`,"probeTimeout":-5`), "serviceArguments.probeTimeout", `"-5" is out of range (allowed: 0 (the default) to 86400 seconds)`},
		{arg(`,"probeTimeout":86401`), "serviceArguments.probeTimeout", `"86401" is out of range`},
		{arg(`,"probeRetries":1000000000`), "serviceArguments.probeRetries", `"1000000000" is out of range (allowed: 0 (the default) to 100)`},
		{arg(`,"probeInterval":"soon"`), "serviceArguments.probeInterval", `"soon" is not a duration`},
		{arg(`,"probeInterval":-5`), "serviceArguments.probeInterval", `"-5" is not a duration`},
		{arg(`,"probeInterval":true`), "serviceArguments.probeInterval", `"true" is not a duration`},
		{arg(`,"inactiveTimeOut":"1.5s"`), "serviceArguments.inactiveTimeOut", `(allowed: a number of seconds, or a duration of whole seconds such as 60s or 1m)`},
		{arg(`,"inactiveTimeOut":"soon"`), "serviceArguments.inactiveTimeOut", `is of the wrong type`},
		{arg(`,"inactiveTimeOut":"48h"`), "serviceArguments.inactiveTimeOut", `"172800" is out of range`},
		{arg(`,"probeWait":"5s"`), "serviceArguments.probeWait", `"5s" is out of range (allowed: 10ms to the probe interval, 2s; 0 is the default)`},
		{arg(`,"allDown":"x"`), "serviceArguments.allDown", `"x" is not known (allowed: refuse or panic)`},
		{arg(`,"security":1`), "serviceArguments.security", `not part of this build`},
		{arg(`,"block":-1`), "serviceArguments.block", `"-1" is out of range (allowed: 0 (any) to 4294967295)`},
		{arg(`,"snat":true`), "serviceArguments.snat", `not part of this build`},
		{arg(`,"oper":3`), "serviceArguments.oper", `serviceArguments.oper "3" is not known (allowed: 0 (replace the endpoints), 1 (attach) or 2 (detach))`},
		{arg(`,"host":"a.example"`), "serviceArguments.host", `not part of this build`},
		{arg(`,"proxyprotocolv2":true,"mode":3`), "serviceArguments.proxyprotocolv2", `"true" is set, but mode is dsr (allowed: false, or mode default, onearm or fullnat)`},
		{strings.TrimSuffix(arg(""), "}") + `,"secondaryIPs":[{"secondaryIP":"fe80::1"}]}`, "secondaryIPs", `link-local`},
		{strings.TrimSuffix(arg(""), "}") + `,"allowedSources":[{"prefix":"1.1.1.0/33"}]}`, "allowedSources", `"1.1.1.0/33" is not a prefix (allowed: IP/LENGTH or IP)`},
		{strings.TrimSuffix(arg(""), "}") + `,"allowedSources":[{"prefix":"2001:db8::/32"}]}`, "allowedSources", `"2001:db8::/32" is IPv6, and the VIP is IPv4`},
		{`{"serviceArguments":{"externalIP":"20.20.20.1","port":80,"protocol":"tcp"},"endpoints":[]}`, "endpoints", `is too few`},
		{ep(`{"endpointIP":"10.0.0.1","targetPort":8080}`), "endpoints[1].weight", `is missing (allowed: 0 to 65535)`},
		{ep(`{"endpointIP":"10.0.0.1","targetPort":8080,"weight":65536}`), "endpoints[1].weight", `"65536" is out of range`},
		{ep(`{"endpointIP":"10.0.0.1","targetPort":8080,"weight":-1}`), "endpoints[1].weight", `"-1" is out of range`},
		{ep(`{"endpointIP":"10.0.0.1","targetPort":0,"weight":1}`), "endpoints[1].targetPort", `is zero`},
		{ep(`{"endpointIP":"10.0.0.1","targetPort":70000,"weight":1}`), "endpoints[1].targetPort", `is out of range`},
		{ep(`{"endpointIP":"host","targetPort":8080,"weight":1}`), "endpoints[1].endpointIP", `is not an IP address`},
		{ep(`{"endpointIP":"127.0.0.1","targetPort":8080,"weight":1}`), "endpoints[1].endpointIP", `is a loopback address`},
		{ep(`{"endpointIP":"10.0.0.9","targetPort":8080,"weight":2}`), "endpoints[1]", `is given twice`},
		{`{"lbAttr":[` + apitest.Demo + `,` + ep(`{"endpointIP":"x","targetPort":8080,"weight":1}`) + `]}`, "lbAttr[1].endpoints[1].endpointIP", `is not an IP address`},
		{`{"lbAttr":[` + apitest.Demo + `,` + apitest.Demo + `]}`, "lbAttr[1].serviceArguments", `"20.20.20.1:2020/tcp" is given twice, in lbAttr[0] and lbAttr[1]`},
		{`{"lbAttr":[` + apitest.Demo + `,` + arg(`,"security":1`) + `]}`, "lbAttr[1].serviceArguments.security", `not part of this build`},
		{` null `, "", "the body is null: a JSON object is expected"},
		{arg(",\"name\":\"a\xff\""), "", `the body is not UTF-8 (line 1, column 84)`},
		{arg(`,"name":"a","name":"b"`), "name", `property "name" is given twice (line 1, column `},
		{arg(`,"bgp":false,"BGP":true`), "BGP", `property "BGP" is given twice`},
	} {
		b := apitest.New(t, nil)
		w := b.Post(tc.body)
		e := apitest.ProblemOf(t, w)
		code := 400
		if strings.Contains(tc.message, "not part of this build") {
			code = 501
		}
		if w.Code != code || e.Field != tc.field || !strings.Contains(e.Message, tc.message) {
			t.Errorf("POST %s:\n got %d field %q: %s\nwant %d field %q: ...%s", tc.body, w.Code, e.Field, e.Message, code, tc.field, tc.message)
		}
		if n := b.Store.Services.Len(b.Store.Snapshot()); n != 0 {
			t.Errorf("POST %s was refused and left %d services", tc.body, n)
		}
	}
}

func TestUpdateAndConflict(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	b.MustPost(apitest.Demo)
	w := b.Post(apitest.Demo)
	if e := apitest.ProblemOf(t, w); w.Code != 409 || e.Result != "lbrule-exists error" {
		t.Errorf("the same again: %d %+v", w.Code, e)
	}
	b.MustPost(`{"lbAttr":[` + apitest.Demo + `]}`)
	for _, change := range [][2]string{
		{`"weight":1}]`, `"weight":7}]`},
		{`"protocol":"tcp"`, `"protocol":"tcp","sel":2`},
		{`"protocol":"tcp"`, `"protocol":"tcp","inactiveTimeOut":60`},
		{`"protocol":"tcp"`, `"protocol":"tcp","name":"web"`},
		{`,{"endpointIP":"32.32.32.1","targetPort":5001,"weight":1}`, ``},
	} {
		b.MustPost(strings.Replace(apitest.Demo, change[0], change[1], 1))
	}
	s, _ := b.Store.Services.Get(b.Store.Snapshot(), apitest.DemoKey())
	if got, want := s.String(), "20.20.20.1:2020/tcp mode=default select=rr endpoints=31.31.31.1:5001"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	// An update does not mark a service as managed, as in the contract.
	w = b.Post(strings.Replace(strings.Replace(apitest.Demo, `,{"endpointIP":"32.32.32.1","targetPort":5001,"weight":1}`, ``, 1), `"protocol"`, `"managed":true,"protocol"`, 1))
	if w.Code != 409 {
		t.Errorf("managed alone changed: %d %s", w.Code, w.Body)
	}
}

// TestNamesAreShared checks that several ports can share a name, and are deleted by it.
func TestNamesAreShared(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	named := strings.Replace(apitest.Demo, `"protocol"`, `"name":"web","protocol"`, 1)
	b.MustPost(named)
	b.MustPost(strings.Replace(named, "2020", "2021", 1))
	b.MustPost(strings.Replace(apitest.Demo, "2020", "2022", 1))
	if w := b.Call("DELETE", httpapi.BaseURL+"/config/loadbalancer/name/web", ""); w.Code != 200 {
		t.Errorf("got %d %s, want code 200", w.Code, w.Body)
	}
	if left := b.List(); len(left) != 1 || left[0].ServiceArguments.Port != 2022 {
		t.Errorf("the remaining services are %+v", left)
	}
}

func TestBulkIsAllOrNothing(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	other := strings.Replace(apitest.Demo, "2020", "2021", 1)
	bad := strings.Replace(apitest.Demo, "2020", "0", 1)
	if w := b.Post(`{"lbAttr":[` + apitest.Demo + `,` + other + `,` + bad + `]}`); w.Code != 400 {
		t.Errorf("got %d %s, want code 400", w.Code, w.Body)
	}
	if n := b.Store.Services.Len(b.Store.Snapshot()); n != 0 {
		t.Errorf("%d services were left", n)
	}
	b.MustPost(`{"lbAttr":[` + apitest.Demo + `,` + other + `]}`)
	if r := b.Store.Snapshot().Revision(); r != 1 {
		t.Errorf("one request made %d revisions", r)
	}
	// The output of GET can be sent back, and is no change.
	w := b.Call("GET", httpapi.BaseURL+"/config/loadbalancer/all", "")
	b.MustPost(w.Body.String())
	if r := b.Store.Snapshot().Revision(); r != 1 {
		t.Errorf("the same again made revision %d", r)
	}
}

func TestDataPathRefuses(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	b.Fake.ApplyErr = apitest.ErrDataPath
	w := b.Post(apitest.Demo)
	if e := apitest.ProblemOf(t, w); w.Code != 503 || !strings.Contains(e.Message, "stored as version 1") || !strings.Contains(e.Message, apitest.ErrDataPath.Error()) {
		t.Errorf(`got %d %+v, want code 503, "stored as version 1" in the message, the data path's error in the message`,
			w.Code, e)
	}
}

func TestStoreClosed(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	if err := b.Store.Close(); err != nil {
		t.Fatal(err)
	}
	if w := b.Post(apitest.Demo); w.Code != 503 {
		t.Errorf("got %d %s, want code 503", w.Code, w.Body)
	}
}

// TestBulkScales checks that eight times as many services take about eight times as long. Quadratic
// work would take 64 times as long; the bound in between leaves room for a busy machine.
func TestBulkScales(t *testing.T) {
	const few, many = 1000, 8000
	short, long := bulk(t, few), bulk(t, many)
	for range 3 { // other programs may slow a try down
		if long <= 32*short {
			break
		}
		short, long = max(short, bulk(t, few)), min(long, bulk(t, many))
	}
	t.Logf("%d services of 10 endpoints: %v; %d: %v", few, short, many, long)
	if long > 32*short {
		t.Errorf("%d services take %v, and %d take %v", few, short, many, long)
	}
}

// bulk posts n services in one request, and returns how long that took.
func bulk(t *testing.T, n int) time.Duration {
	t.Helper()
	b := apitest.New(t, nil)
	var body strings.Builder
	body.WriteString(`{"lbAttr":[`)
	for i := range n {
		if i > 0 {
			body.WriteByte(',')
		}
		fmt.Fprintf(&body, `{"serviceArguments":{"externalIP":"20.%d.%d.1","port":80,"protocol":"tcp","sel":0,"mode":0},"endpoints":[`, i/250, i%250)
		for j := range 10 {
			if j > 0 {
				body.WriteByte(',')
			}
			fmt.Fprintf(&body, `{"endpointIP":"10.%d.%d.%d","targetPort":8080,"weight":1}`, i/250, i%250, j+1)
		}
		body.WriteString("]}")
	}
	body.WriteString("]}")
	start := time.Now()
	b.MustPost(body.String())
	took := time.Since(start)
	if got := b.Store.Services.Len(b.Store.Snapshot()); got != n {
		t.Errorf("%d services stored, want %d", got, n)
	}
	return took
}

// TestRangeOfOnePort checks that in POST a range that ends below its first port means that port, as
// in the contract, with a warning. Deleting or applying such a range is refused: the key names no
// service, so nothing would be deleted.
func TestRangeOfOnePort(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	w := b.Post(strings.Replace(apitest.Demo, `2020`, `2020,"portMax":1`, 1))
	if got := w.Header().Get("Warning"); w.Code != 200 || !strings.Contains(got, "serviceArguments.portMax 1 is below port 2020: the service has the one port") {
		t.Errorf("got %d %s, %s, want code 200, "+
			`"serviceArguments.portMax 1 is below port 2020: the service has the one port" in got`,
			w.Code, w.Body, got)
	}
	if _, there := b.Store.Services.Get(b.Store.Snapshot(), apitest.DemoKey()); !there {
		t.Error("the service of the single port does not exist")
	}
	const services, key = httpapi.BaseURL + "/config/loadbalancer", `"externalIP":"20.20.20.1","port":2020,"portMax":1,"protocol":"tcp"`
	const object = `"objects":[{"kind":"lb","spec":{"serviceArguments":{` + key + `},"endpoints":[{"endpointIP":"31.31.31.1","targetPort":80,"weight":1}]}}]`
	for _, c := range []struct{ method, path, body string }{
		{"DELETE", services + "/externalipaddress/20.20.20.1/port/2020/portmax/1/protocol/tcp", ""},
		{"DELETE", services + "/hosturl/any/externalipaddress/20.20.20.1/port/2020/portmax/1/protocol/tcp", ""},
		{"DELETE", services, `{"lbAttr":[{` + key + `}]}`},
		{"POST", httpapi.BaseURL + "/config/apply", `{"remove":true,` + object + `}`},
		{"POST", httpapi.BaseURL + "/config/apply", `{` + object + `}`},
	} {
		w := b.Call(c.method, c.path, c.body)
		if n := b.Store.Services.Len(b.Store.Snapshot()); w.Code != 400 || n != 1 ||
			!strings.Contains(w.Body.String(), `1\" is below the first port, 2020 (allowed: 0 (one port), or above the first)`) {
			t.Errorf("%s %s %s: %d %s, %d services are left", c.method, c.path, c.body, w.Code, w.Body, n)
		}
	}
}

// TestExistsNotApplied checks that the error for an existing service that is not applied says so,
// with the reason: clients of the contract treat the error as success.
func TestExistsNotApplied(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	b.MustPost(apitest.Demo)
	id := status.ID(desired.ServiceID(apitest.DemoKey()))
	b.Fake.Want(id, 1)
	b.Fake.Failed(id, 1, apitest.ErrDataPath, time.Now())
	w := b.Post(apitest.Demo)
	if e := apitest.ProblemOf(t, w); w.Code != 409 || !strings.Contains(e.Message, "exists already with the same content, and is not applied yet: "+apitest.ErrDataPath.Error()) {
		t.Errorf("got %d %+v, want code 409, and that the identical service is not applied yet", w.Code, e)
	}
}

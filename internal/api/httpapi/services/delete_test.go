package services_test

import (
	"strconv"
	"strings"
	"testing"

	"loxilb/internal/api/httpapi"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/test/apitest"
)

func TestDelete(t *testing.T) {
	t.Parallel()
	const at = httpapi.BaseURL + "/config/loadbalancer/"
	v6 := strings.NewReplacer("20.20.20.1", "2001:db8::1", "31.31.31.1", "2001:db8::31", "32.32.32.1", "2001:db8::32").Replace(apitest.Demo)
	named := strings.Replace(apitest.Demo, `"protocol"`, `"name":"my web","protocol"`, 1)
	for _, tc := range []struct{ service, path string }{
		{named, at + "name/my%20web"},
		{apitest.Demo, at + "externalipaddress/20.20.20.1/port/2020/protocol/tcp"},
		{apitest.Demo, at + "externalipaddress/20.20.20.1/port/2020/protocol/tcp?bgp=false&block=0"},
		{apitest.Demo, at + "externalipaddress/20.20.20.1/port/2020/portmax/2020/protocol/tcp"},
		{apitest.Demo, at + "externalipaddress/20.20.20.1/port/2020/portmax/0/protocol/tcp"},
		{apitest.Demo, at + "hosturl/any/externalipaddress/20.20.20.1/port/2020/protocol/tcp?bgp=false&block=0"},
		{apitest.Demo, at + "hosturl/any/externalipaddress/20.20.20.1/port/2020/portmax/2020/protocol/tcp"},
		{v6, at + "externalipaddress/2001:db8::1/port/2020/protocol/tcp"},
		{v6, at + "externalipaddress/2001:0db8:0::1/port/2020/protocol/tcp"},
		{strings.Replace(apitest.Demo, `"protocol"`, `"portMax":2030,"block":7,"protocol"`, 1), at + "externalipaddress/20.20.20.1/port/2020/portmax/2030/protocol/tcp?block=7"},
		{apitest.Demo, at + "all"},
		{apitest.Demo, at + "all?force=true"},
	} {
		b := apitest.New(t, nil)
		b.MustPost(tc.service)
		if w := b.Call("DELETE", tc.path, ""); w.Code != 200 || strings.TrimSpace(w.Body.String()) != `{"result":"Success"}` {
			t.Errorf("DELETE %s: %d %s", tc.path, w.Code, w.Body)
		}
		if n := b.Store.Services.Len(b.Store.Snapshot()); n != 0 {
			t.Errorf("DELETE %s left %d services", tc.path, n)
		}
	}
}

func TestDeleteRefused(t *testing.T) {
	t.Parallel()
	const at = httpapi.BaseURL + "/config/loadbalancer/"
	b := apitest.New(t, nil)
	b.MustPost(apitest.Demo)
	for _, tc := range []struct {
		path           string
		code           int
		field, message string
	}{
		{at + "externalipaddress/20.20.20/port/2020/protocol/tcp", 400, "ip_address", "is not an IP address"},
		{at + "externalipaddress/20.20.20.1/port/http/protocol/tcp", 400, "port", `port "http" is not`},
		{at + "externalipaddress/20.20.20.1/port/65536/protocol/tcp", 400, "port", "is out of range"},
		{at + "externalipaddress/20.20.20.1/port/2020/protocol/quic", 400, "protocol", "is not known"},
		{at + "externalipaddress/20.20.20.1/port/2020/protocol/tcp?bgp=perhaps", 400, "bgp", `"perhaps" is not known (allowed: true or false)`},
		{at + "externalipaddress/20.20.20.1/port/2020/protocol/tcp?block=x", 400, "block", `block "x" is not a mark`},
		{at + "externalipaddress/20.20.20.1/port/2020/portmax/x/protocol/tcp", 400, "portmax", `portmax "x" is not`},
		{at + "hosturl/a.example/externalipaddress/20.20.20.1/port/2020/protocol/tcp", 501, "hosturl", "not part of this build"},
		{at + "hosturl/a.example/externalipaddress/20.20.20.1/port/2020/portmax/2030/protocol/tcp", 501, "hosturl", "not part of this build"},
		{at + "externalipaddress/20.20.20.1/port/2020/protocol/tcp?mark=7", 400, "parameter", `parameter "mark" is not known (allowed: bgp, block)`},
		{at + "all?name=web", 400, "parameter", `parameter "name" is not known (allowed: no parameters)`},
		{at + "name/web?dryRun=true", 400, "parameter", `"dryRun" is not known`},
		{at + "everything", 404, "", "/netlox/v1/config/loadbalancer/everything not found"},
		{httpapi.BaseURL + "/version", 405, "method", `method "DELETE" is not for /netlox/v1/version`},
	} {
		w := b.Call("DELETE", tc.path, "")
		e := apitest.ProblemOf(t, w)
		if w.Code != tc.code || e.Field != tc.field || !strings.Contains(e.Message, tc.message) {
			t.Errorf("DELETE %s:\n got %d %q %s\nwant %d %q %s", tc.path, w.Code, e.Field, e.Message, tc.code, tc.field, tc.message)
		}
	}
	if n := b.Store.Services.Len(b.Store.Snapshot()); n != 1 {
		t.Errorf("%d services are left", n)
	}
	if w := b.Call("PUT", httpapi.BaseURL+"/config/loadbalancer", ""); w.Code != 405 || w.Header().Get("Allow") != "DELETE, POST" {
		t.Errorf("PUT: %d, Allow %q", w.Code, w.Header().Get("Allow"))
	}
}

// TestDeleteMisspelt checks that a deletion with an unknown filter is refused: ignoring it would
// delete more than intended. If a path names the service completely, clients of the existing loxilb
// can add any parameter.
func TestDeleteMisspelt(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/config/firewall?sourceIp=10.0.0.0/8", "/config/firewall/all?name=x", "/config/conntrack?source=9.9.9.9&endpont=31.31.31.1"} {
		for _, compat := range []bool{false, true} {
			b := apitest.New(t, func(o *httpapi.Options) { o.Compat = compat })
			w := b.Call("DELETE", httpapi.BaseURL+path, "")
			if e := apitest.ProblemOf(t, w); w.Code != 400 || e.Field != "parameter" {
				t.Errorf(`%s: got %d %s, want code 400, e.Field == "parameter"`, path, w.Code, e.Message)
			}
		}
	}
	b := apitest.New(t, func(o *httpapi.Options) { o.Compat = true })
	b.MustPost(apitest.Demo)
	if w := b.Call("DELETE", httpapi.BaseURL+"/config/loadbalancer/externalipaddress/20.20.20.1/port/2020/protocol/tcp?reason=scaled", ""); w.Code != 200 {
		t.Errorf("compat: %d %s", w.Code, w.Body)
	}
}

// TestDeleteGone checks that deleting a missing service succeeds, as in the contract, with a
// warning for people.
func TestDeleteGone(t *testing.T) {
	t.Parallel()
	const at = httpapi.BaseURL + "/config/loadbalancer/"
	b := apitest.New(t, nil)
	b.MustPost(apitest.Demo)
	revision := b.Store.Snapshot().Revision()
	for path, want := range map[string]string{
		at + "name/web":        "no service named web",
		at + "name/a%22%20%0a": `no service named a\\\" \\n`,
		at + "externalipaddress/20.20.20.1/port/2021/protocol/tcp":              "service 20.20.20.1:2021/tcp does not exist",
		at + "externalipaddress/20.20.20.1/port/2020/protocol/udp":              "service 20.20.20.1:2020/udp does not exist",
		at + "externalipaddress/20.20.20.1/port/2020/protocol/tcp?block=7":      "service 20.20.20.1:2020/tcp/mark=7 does not exist",
		at + "externalipaddress/20.20.20.1/port/2020/portmax/2030/protocol/tcp": "service 20.20.20.1:2020-2030/tcp does not exist",
		at + "hosturl/any/externalipaddress/2001:db8::1/port/1/protocol/tcp":    "service [2001:db8::1]:1/tcp does not exist",
	} {
		w := b.Call("DELETE", path, "")
		if got := w.Header().Values("Warning"); w.Code != 200 || strings.TrimSpace(w.Body.String()) != `{"result":"Success"}` ||
			len(got) != 1 || got[0] != `299 loxilb "`+want+`"` {
			t.Errorf("DELETE %s: %d %s, %q; want %s", path, w.Code, w.Body, got, want)
		}
	}
	if now := b.Store.Snapshot(); now.Revision() != revision || b.Store.Services.Len(now) != 1 {
		t.Errorf("revision %d, %d services", now.Revision(), b.Store.Services.Len(now))
	}
}

// TestDeleteList checks that several services are deleted in one transaction.
func TestDeleteList(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	const key = `{"externalIP":"20.20.20.1","port":2020,"protocol":"tcp"}`
	other := strings.Replace(key, `"tcp"`, `"udp","block":7,"host":"any"`, 1)
	ranged := strings.Replace(key, `2020`, `3000,"PortMax":3009`, 1)
	b.MustPost(`{"lbAttr":[` + apitest.Demo + `,` + strings.Replace(apitest.Demo, `"tcp"`, `"udp","block":7`, 1) + `,` + strings.Replace(apitest.Demo,
		`2020`, `3000,"portMax":3009`, 1) + `]}`)
	for _, tc := range []struct {
		keys           string
		code           int
		field, message string
	}{
		{`{"lbAttr":[` + key + `,` + other + `,` + key + `]}`, 400, "lbAttr[2]", `"20.20.20.1:2020/tcp" is given twice, in lbAttr[0] and lbAttr[2]`},
		{`{"lbAttr":[` + key + `,` + strings.Replace(key, "tcp", "quic", 1) + `]}`, 400, "lbAttr[1].protocol", `"quic" is not known`},
		{`{"lbAttr":[` + key + `,` + strings.Replace(key, "2020", "70000", 1) + `]}`, 400, "lbAttr[1].port", `"70000" is out of range`},
		{`{"lbAttr":[` + key + `,` + strings.Replace(key, "20.20.20.1", "x", 1) + `]}`, 400, "lbAttr[1].externalIP", `"x" is not an IP address`},
		{`{"lbAttr":[` + strings.Replace(key, "2020", `2020,"host":"a.example"`, 1) + `]}`, 501, "lbAttr[0].host", `not part of this build`},
		{`{"lbAttr":[` + strings.Replace(key, "2020", `2020,"mode":3`, 1) + `]}`, 400, "mode", `unknown property "mode"`},
		{`{"lbAttr":[]}`, 400, "lbAttr", "is missing or empty"},
		{`{}`, 400, "lbAttr", "is missing or empty"},
		{``, 400, "", "the body is empty"},
	} {
		w := b.Call("DELETE", httpapi.BaseURL+"/config/loadbalancer", tc.keys)
		if e := apitest.ProblemOf(t, w); w.Code != tc.code || e.Field != tc.field || !strings.Contains(e.Message, tc.message) {
			t.Errorf("%s:\n got %d %q %s\nwant %d %q %s", tc.keys, w.Code, e.Field, e.Message, tc.code, tc.field, tc.message)
		}
		if n := b.Store.Services.Len(b.Store.Snapshot()); n != 3 {
			t.Fatalf("%s was refused, and %d services are left", tc.keys, n)
		}
	}
	if w := b.Call("DELETE", httpapi.BaseURL+"/config/loadbalancer?bgp=perhaps", `{"lbAttr":[`+key+`]}`); w.Code != 400 || apitest.ProblemOf(t, w).Field != "bgp" {
		t.Errorf("bgp: %d %s", w.Code, w.Body)
	}
	before := b.Store.Snapshot().Revision()
	gone := ""
	for i := range 2 * rest.MaxWarnings {
		gone += `,` + strings.Replace(key, "2020", strconv.Itoa(5000+i), 1)
	}
	w := b.Call("DELETE", httpapi.BaseURL+"/config/loadbalancer?bgp=true", `{"lbAttr":[`+key+`,`+other+`,`+ranged+gone+`]}`)
	if w.Code != 200 {
		t.Errorf("got %d %s, want code 200", w.Code, w.Body)
	}
	if got := w.Header().Values("Warning"); len(got) != rest.MaxWarnings || got[0] != `299 loxilb "service 20.20.20.1:5000/tcp does not exist"` ||
		got[rest.MaxWarnings-1] != `299 loxilb "and 9 more of the kind"` {
		t.Errorf("warnings %q", got)
	}
	if now := b.Store.Snapshot(); b.Store.Services.Len(now) != 0 || now.Revision() != before+1 {
		t.Errorf("%d services are left, in revision %d after %d", b.Store.Services.Len(now), now.Revision(), before)
	}
}

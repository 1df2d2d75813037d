package traffic_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi"
	"loxilb/internal/api/httpapi/objects"
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
	"loxilb/internal/lb/policy"
	"loxilb/internal/lb/report"
	"loxilb/test/apitest"
)

const firewallPath = httpapi.BaseURL + "/config/firewall"

// TestFirewall checks that requests of the contract's clients are accepted, that the output of GET
// can be sent back, that a duplicate is a conflict, and that DELETE takes the match by query.
func TestFirewall(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ body, want, query string }{
		{ // the existing loxicmd sends all properties
			`{"ruleArguments":{"sourceIP":"1.2.3.2/32","destinationIP":"2.3.1.2/32","minSourcePort":0,"maxSourcePort":0,"minDestinationPort":0,` +
				`"maxDestinationPort":0,"protocol":0,"portName":"","preference":200},` +
				`"opts":{"allow":true,"fwMark":0}}`,
			"sourceIP:1.2.3.2/32,destinationIP:2.3.1.2/32,preference:200 allow", "sourceIP=1.2.3.2/32&destinationIP=2.3.1.2/32&preference=200&protocol=0&minSourcePort=0",
		},
		{
			`{"ruleArguments":{"sourceIP":"10.0.0.0/8","destinationIP":"0.0.0.0/0","minDestinationPort":80,"maxDestinationPort":90,"protocol":6,"portName":"hs1"},"opts":{"drop":true}}`,
			"sourceIP:10.0.0.0/8,minDestinationPort:80,maxDestinationPort:90,protocol:6,portName:hs1 drop",
			"sourceIP=10.0.0.0/8&minDestinationPort=80&maxDestinationPort=90&protocol=6&portName=hs1",
		},
		{`{"ruleArguments":{"sourceIP":"2001:db8::/32"},"opts":{"trap":true,"fwMark":7}}`, "sourceIP:2001:db8::/32 trap mark=7", "sourceIP=2001:db8::/32"},
		{ // kube-loxilb
			`{"ruleArguments":{"sourceIP":"10.244.0.0/16"},"opts":{"doSnat":true,"toIP":"20.20.20.1","onDefault":true}}`,
			"sourceIP:10.244.0.0/16 snat=20.20.20.1 default", "sourceIP=10.244.0.0/16",
		},
		{`{"ruleArguments":{"portName":"hs1"},"opts":{"redirect":true,"redirectPortName":"hs2"}}`, "portName:hs1 redirect=hs2", "portName=hs1"},
		{`{"ruleArguments":{},"opts":{"drop":true}}`, "preference:0 drop", ""},
		{`{"ruleArguments":{},"opts":{"drop":true,"record":true}}`, "preference:0 drop record", ""},
	} {
		b := apitest.New(t, nil)
		if code, text := b.PostRule(tc.body); code != 200 || strings.TrimSpace(text) != `{"result":"Success"}` {
			t.Fatalf("%s: got %d %s, want code 200, text == `{\"result\":\"Success\"}`",
				tc.body, code, text)
		}
		if diff := cmp.Diff([]string{tc.want}, b.Rules()); diff != "" {
			t.Errorf("stored rules differ (-want +got):\n%s", diff)
		}
		if code, text := b.PostRule(tc.body); code != 409 || !strings.Contains(text, "fwrule-exists") {
			t.Errorf("the repeated request is answered %d %s", code, text)
		}
		var list v1.FirewallList
		if err := json.Unmarshal(b.Call("GET", firewallPath+"/all", "").Body.Bytes(), &list); err != nil || len(list.FwAttr) != 1 {
			t.Fatalf("got %v %v, want no error, 1 element in list.FwAttr", list, err)
		}
		back, err := json.Marshal(list.FwAttr[0])
		if err != nil {
			t.Fatal(err)
		}
		if code, text := b.PostRule(string(back)); code != 409 {
			t.Errorf("%s: got %d %s, want code 409", back, code, text)
		}
		for range 2 { // deleting a missing rule succeeds
			if w := b.Call("DELETE", firewallPath+"?"+tc.query, ""); w.Code != 200 || len(b.Rules()) != 0 {
				t.Errorf("delete: %d %s: %v", w.Code, w.Body, b.Rules())
			}
		}
	}
}

// TestFirewallRefused checks that each bad value is refused with one sentence that names its
// property, and changes nothing.
func TestFirewallRefused(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	for _, tc := range []struct{ args, opts, field, want string }{
		{`"sourceIP":"x"`, ``, "sourceIP", `"x" is not a prefix`},
		{`"destinationIP":"::ffff:1.2.3.4"`, ``, "destinationIP", `is an IPv4 address written as IPv6`},
		{`"minSourcePort":-1`, ``, "minSourcePort", `"-1" is out of range (allowed: 0 to 65535)`},
		{`"maxDestinationPort":65536`, ``, "maxDestinationPort", `"65536" is out of range`},
		{`"protocol":256`, ``, "protocol", `"256" is out of range (allowed: 0 to 255)`},
		{`"preference":65536`, ``, "preference", `"65536" is out of range`},
		{`"portName":"a/b"`, ``, "portName", `"a/b" is not the name of an interface`},
		{``, `"allow":true,"drop":true`, "drop", `cannot be combined with allow`},
		{``, `"redirect":true`, "redirectPortName", `is missing`},
		{``, `"doSnat":true`, "toIP", `toIP is missing (allowed: an IPv4`},
		{``, `"doSnat":true,"toIP":"20.20.20.1","toPort":5`, "toPort", `"5" is a port of our choice`},
		{`"sourceIP":"10.0.0.0/8"`, `"doSnat":true,"toIP":"2001:db8::1"`, "toIP", `is IPv6, and the rule is for IPv4`},
		{``, `"fwMark":-1`, "fwMark", `"-1" is out of range`},
		{``, `"fwMark":4294967296`, "fwMark", `"4294967296" is out of range`},
	} {
		body := fmt.Sprintf(`{"ruleArguments":{%s},"opts":{%s}}`, tc.args, tc.opts)
		w := b.Call("POST", firewallPath, body, "Content-Type", "application/json")
		if p := apitest.ProblemOf(t, w); w.Code != 400 || p.Field != tc.field || !strings.Contains(p.Message, tc.want) {
			t.Errorf("%s: got %d %+v, want code 400 about %s with %q", body, w.Code, p, tc.field, tc.want)
		}
		bulk := `{"fwAttr":[{"ruleArguments":{"preference":1},"opts":{}},` + body + `]}`
		w = b.Call("POST", firewallPath, bulk, "Content-Type", "application/json")
		if p := apitest.ProblemOf(t, w); w.Code != 400 || p.Field != "fwAttr[1]."+tc.field {
			t.Errorf("%s: got %d %+v, want code 400 about fwAttr[1].%s", bulk, w.Code, p, tc.field)
		}
	}
	for _, query := range []string{"sourceIP=x", "preference=x", "protocol=999"} {
		if w := b.Call("DELETE", firewallPath+"?"+query, ""); w.Code != 400 {
			t.Errorf("%s: got %d %s, want code 400", query, w.Code, w.Body)
		}
	}
	if list := b.Rules(); len(list) != 0 {
		t.Errorf("something is stored: %v", list)
	}
}

// TestFirewallEnds checks that a plan counts the connections of services that the new rules would
// end and the former ones do not.
func TestFirewallEnds(t *testing.T) {
	t.Parallel()
	dropper := func(rules []policy.Rule) func(*report.Connection) bool {
		return func(c *report.Connection) bool {
			return slices.ContainsFunc(rules, func(r policy.Rule) bool { return !r.Source.IsValid() || r.Source.Contains(c.Src.Addr()) })
		}
	}
	b := apitest.New(t, func(o *httpapi.Options) { o.Dropper = dropper })
	live := report.Connection{Protocol: lb.TCP, Src: netip.MustParseAddrPort("203.0.113.9:5000"), Dst: netip.MustParseAddrPort("20.20.20.1:80"), State: "est"}
	reply, over, dropped := live, live, live
	reply.Reply, over.State, dropped.Src = true, "closed", netip.MustParseAddrPort("198.51.100.1:5000")
	b.Fake.Conns = []report.Connection{live, live, reply, over, dropped}
	if code, text := b.PostRule(`{"ruleArguments":{"sourceIP":"198.51.100.0/24","preference":9},"opts":{"drop":true}}`); code != 200 {
		t.Fatalf("got %v %v, want code 200", code, text)
	}
	for body, want := range map[string]string{
		`{"objects":[{"kind":"Firewall","spec":{"ruleArguments":{},"opts":{"drop":true}}}],"dryRun":true}`:                        `"ruleCut":2`,
		`{"objects":[{"kind":"Firewall","spec":{"ruleArguments":{"sourceIP":"10.0.0.0/8"},"opts":{"drop":true}}}],"dryRun":true}`: `"unchanged":0}`,
	} {
		w := b.Call("POST", httpapi.BaseURL+"/config/apply", body, "Content-Type", "application/json")
		if w.Code != 200 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s, want %s", body, w.Code, w.Body, want)
		}
	}
}

// TestFirewallCuts checks that a change that disconnects clients of the machine itself is refused
// with their names, and is made with force.
func TestFirewallCuts(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	b.Fake.Accepted = []policy.AcceptedConnection{{Remote: netip.MustParseAddrPort("203.0.113.9:5000"), Local: netip.MustParseAddrPort("10.0.0.1:22"), Interface: "eth0"}}
	const all = `{"ruleArguments":{},"opts":{"drop":true}}`
	for _, body := range []string{all, `{"ruleArguments":{},"opts":{"redirect":true,"redirectPortName":"eth1"}}`} {
		if code, text := b.PostRule(body); code != 409 || !strings.Contains(text, "the ssh session from 203.0.113.9:5000 to 10.0.0.1:22") || len(b.Rules()) != 0 {
			t.Errorf(`got %d %s %v, want code 409, "the ssh session from 203.0.113.9:5000 to 10.0.0.1:22" in text, no rules`,
				code, text, b.Rules())
		}
	}
	const list = `{"objects":[{"kind":"Firewall","spec":` + all + `}]`
	for body, want := range map[string]string{list + `}`: "409 ", list + `,"dryRun":true}`: `200 "cuts":["the ssh session from 203.0.113.9:5000 to 10.0.0.1:22"]`} {
		w := b.Call("POST", httpapi.BaseURL+"/config/apply", body, "Content-Type", "application/json")
		if code, text, _ := strings.Cut(want, " "); fmt.Sprint(w.Code) != code || !strings.Contains(w.Body.String(), text) || len(b.Rules()) != 0 {
			t.Errorf("%s: got %d %s, want code %s with %q, and no rules", body, w.Code, w.Body, code, text)
		}
	}
	for _, body := range []string{`{"ruleArguments":{"sourceIP":"203.0.113.0/24","preference":9},"opts":{"allow":true}}`, all} {
		if code, text := b.PostRule(body); code != 200 {
			t.Fatalf("got %v %v, want code 200", code, text)
		}
	}
	const allow = firewallPath + "?sourceIP=203.0.113.0/24&preference=9"
	if w := b.Call("DELETE", allow, ""); w.Code != 409 || len(b.Rules()) != 2 {
		t.Errorf("got %d %s, want code 409, 2 rules", w.Code, w.Body)
	}
	if w := b.Call("DELETE", allow+"&force=true", ""); w.Code != 200 || len(b.Rules()) != 1 {
		t.Errorf("got %d %s, want code 200, 1 rule", w.Code, w.Body)
	}
	if w := b.Call("DELETE", firewallPath+"/all", ""); w.Code != 200 {
		t.Errorf("got %d %s, want code 200", w.Code, w.Body)
	}
	if w := b.Call("POST", firewallPath+"?force=true", all, "Content-Type", "application/json"); w.Code != 200 {
		t.Errorf("got %d %s, want code 200", w.Code, w.Body)
	}
}

// TestFirewallAsks checks that the affected connections are found without holding the store's lock,
// and against the rules at the time of the change. Changes that affect no rule do not read the
// sockets.
func TestFirewallAsks(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	b.Fake.Accepted = []policy.AcceptedConnection{{Remote: netip.MustParseAddrPort("203.0.113.9:5000"), Local: netip.MustParseAddrPort("10.0.0.1:22"), Interface: "eth0"}}
	const allow, all = `{"ruleArguments":{"sourceIP":"203.0.113.0/24","preference":9},"opts":{"allow":true}}`, `{"ruleArguments":{},"opts":{"drop":true}}`
	if code, text := b.PostRule(allow); code != 200 || b.Fake.SessionRequests.Load() != 0 {
		t.Fatalf("got %v %v %v, want code 200, b.Fake.SessionRequests.Load() == 0", code, text, b.Fake.SessionRequests.Load())
	}
	b.Fake.OnSessions = func() {
		_, _, err := b.Store.Commit(objects.Owner, func(tx *store.Tx) error {
			if _, there := b.Store.Rules.Get(tx, "sourceIP:203.0.113.0/24,preference:9"); !there {
				return nil
			}
			return b.Store.Rules.Delete(tx, "sourceIP:203.0.113.0/24,preference:9")
		})
		if err != nil {
			t.Error(err)
		}
	}
	if code, text := b.PostRule(all); code != 409 || b.Fake.SessionRequests.Load() != 2 {
		t.Errorf("sessions were requested %d times: %d %s", b.Fake.SessionRequests.Load(), code, text)
	}
	b.Fake.OnSessions = nil
	b.Fake.SessionRequests.Store(0)
	if w := b.Call("POST", firewallPath+"?force=true", all, "Content-Type", "application/json"); w.Code != 200 {
		t.Fatalf("got %v %v, want code 200", w.Code, w.Body)
	}
	for _, dry := range []string{"true", "false"} {
		body := `{"dryRun":` + dry + `,"objects":[{"kind":"Firewall","spec":` + all +
			`},{"kind":"Policy","spec":{"policyIdent":"p","policyInfo":{"type":0,"peakInfoRate":100,"committedInfoRate":100},` +
			`"targetObject":{"polObjName":"eth0","attachment":1}}}]}`
		if w := b.Call("POST", httpapi.BaseURL+"/config/apply", body, "Content-Type", "application/json"); w.Code != 200 || b.Fake.SessionRequests.Load() != 0 {
			t.Errorf("sessions were requested %d times: %d %s", b.Fake.SessionRequests.Load(), w.Code, w.Body)
		}
	}
}

// TestFirewallBulk checks that many rules are created in one transaction, shown in the order in
// which they apply, and deleted at once.
func TestFirewallBulk(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	b.Fake.Hits = map[string]report.Traffic{"preference:0": {Packets: 3, Bytes: 120}}
	const body = `{"fwAttr":[{"ruleArguments":{},"opts":{"drop":true}},{"ruleArguments":{"preference":5},"opts":{"allow":true}}]}`
	if code, text := b.PostRule(body); code != 200 {
		t.Fatalf("got %v %v, want code 200", code, text)
	}
	if code, text := b.PostRule(body); code != 200 {
		t.Errorf("the whole again: %d %s", code, text)
	}
	var list v1.FirewallList
	if err := json.Unmarshal(b.Call("GET", firewallPath+"/all", "").Body.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.FwAttr) != 2 || list.FwAttr[0].RuleArguments.Preference != 5 || list.FwAttr[1].Opts.Counter != "3:120" {
		t.Errorf("got %+v, want 2 elements in list.FwAttr, list.FwAttr[0].RuleArguments.Preference == 5, "+
			`list.FwAttr[1].Opts.Counter == "3:120"`,
			list)
	}
	if code, text := b.PostRule(strings.Replace(body, `"preference":5`, `"preference":0`, 1)); code != 400 || !strings.Contains(text, "is given twice, in fwAttr[0] and fwAttr[1]") {
		t.Errorf("one twice: %d %s", code, text)
	}
	if w := b.Call("DELETE", firewallPath+"/all", ""); w.Code != 200 || len(b.Rules()) != 0 {
		t.Errorf("got %d %s, want code 200, no rules", w.Code, w.Body)
	}
	if w := b.Call("DELETE", firewallPath+"?sourceIP="+url.QueryEscape("10.0.0.0/8"), ""); w.Code != 200 {
		t.Errorf("one that was never there: %d %s", w.Code, w.Body)
	}
}

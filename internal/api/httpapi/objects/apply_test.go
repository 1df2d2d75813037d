package objects_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi"
	"loxilb/internal/api/httpapi/objects"
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
	"loxilb/test/apitest"
	"loxilb/test/await"
)

func TestApply(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	const endpoint = `{"kind":"Endpoint","spec":{"hostName":"10.0.0.9"}}`
	const drain = `{"apiVersion":"netlox/v1","kind":"Drain","spec":{"endpoint":"10.0.0.1"}}`
	for _, c := range []struct{ body, want string }{
		{apitest.Object(1, "", "10.0.0.1") + "," + apitest.Object(2, "", "10.0.0.1", "10.0.0.2") + "," + endpoint + "," + drain,
			"add Endpoint 10.0.0.9_ping_0; add Loadbalancer 20.20.20.1:80/tcp; add Loadbalancer 20.20.20.2:80/tcp; add Drain 10.0.0.1; 0 unchanged"},
		{apitest.Object(1, "", "10.0.0.1") + "," + apitest.Object(2, `,"sel":1`, "10.0.0.1") + "," + endpoint, "change Loadbalancer 20.20.20.2:80/tcp; 2 unchanged"},
		{apitest.Object(1, "", "10.0.0.1") + "," + drain, "2 unchanged"},
	} {
		if code, r, e := b.Apply(`{"objects":[` + c.body + `]}`); code != 200 || apitest.DescribeChanges(r) != c.want || r.Result != "Success" {
			t.Errorf("%s\n%d %s %+v, want %s", c.body, code, apitest.DescribeChanges(r), e, c.want)
		}
	}
	if code, r, _ := b.Apply(`{"remove":true,"objects":[` + apitest.Object(1, "") + "," + apitest.Object(9, "") + "," + endpoint + `]}`); code != 200 ||
		apitest.DescribeChanges(r) != "remove Endpoint 10.0.0.9_ping_0; remove Loadbalancer 20.20.20.1:80/tcp; 1 unchanged" {
		t.Errorf("got %d %s, want code 200, "+
			`"remove Endpoint 10.0.0.9_ping_0; remove Loadbalancer 20.20.20.1:80/tcp; 1 unchanged"`,
			code, apitest.DescribeChanges(r))
	}
	if list := b.List(); len(list) != 1 || list[0].ServiceArguments.ExternalIP != "20.20.20.2" {
		t.Errorf(`got %+v, want 1 element, list[0].ServiceArguments.ExternalIP == "20.20.20.2"`, list)
	}
}

// TestApplyMetadata checks that the name of a service and the number of a VLAN can be in the
// metadata, as in files of the existing loxilb.
func TestApplyMetadata(t *testing.T) {
	t.Parallel()
	b := apitest.NewNet(t)
	with := func(metadata, object string) string {
		return strings.Replace(object, `{"kind"`, `{"metadata":`+metadata+`,"kind"`, 1)
	}
	for _, c := range []struct{ object, want string }{
		{with(`{"name":"test","vid":0}`, apitest.Object(1, "", "10.0.0.1")), "add Loadbalancer 20.20.20.1:80/tcp; 0 unchanged"},
		{with(`{"name":"test"}`, apitest.Object(1, "", "10.0.0.1")), "1 unchanged"},
		{with(`{"name":"x"}`, apitest.Object(2, `,"name":"own"`, "10.0.0.1")), "add Loadbalancer 20.20.20.2:80/tcp; 0 unchanged"},
		{`{"kind":"Vlan","metadata":{"name":"v","vid":100}}`, "add Vlan 100; 0 unchanged"},
		{`{"kind":"Vlan","metadata":{"vid":101},"spec":{}}`, "add Vlan 101; 0 unchanged"},
	} {
		if code, r, e := b.Apply(`{"objects":[` + c.object + `]}`); code != 200 || apitest.DescribeChanges(r) != c.want {
			t.Errorf("%s: %d %s %+v, want %s", c.object, code, apitest.DescribeChanges(r), e, c.want)
		}
	}
	for i, want := range []string{"test", "own"} {
		if got := b.List()[i].ServiceArguments.Name; got != want {
			t.Errorf("service %d is %q, want %q", i, got, want)
		}
	}
	for bad, field := range map[string]string{
		with(`{"name":5}`, apitest.Object(3, "", "10.0.0.1")): "metadata.name", with(`[]`, apitest.Object(3, "", "10.0.0.1")): "metadata",
		`{"kind":"Vlan","metadata":{"vid":"x"}}`: "metadata.vid", `{"kind":"Vlan"}`: "metadata.vid", `{"kind":"Vlan","metadata":{"vid":5000}}`: "vid",
	} {
		if code, _, e := b.Apply(`{"objects":[` + bad + `]}`); code != 400 || len(e.Errors) != 1 || e.Errors[0].Field != field {
			t.Errorf("%s: got %d %+v, want code 400 and one error, about %s", bad, code, e, field)
		}
	}
}

// TestApplyRefused checks that a list with an invalid object changes nothing, and that all errors
// are reported.
func TestApplyRefused(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	good := apitest.Object(1, "", "10.0.0.1")
	code, _, e := b.Apply(`{"objects":[` + strings.Join([]string{
		good,
		apitest.Object(2, `,"mode":9`, "10.0.0.1"),
		strings.Replace(apitest.Object(3, `,"colour":1,"name":"a"`, "10.0.0.1"), `"port":80`, `"port":"x"`, 1),
		apitest.Object(4, `,"shade":1,"hue":2`, "10.0.0.1"),
		`{"kind":"Unicorn","spec":{}}`,
		`{"kind":"ep","spec":{"hostName":"nowhere"}}`,
		good,
		`{"kind":"lb","spec":7}`,
		strings.Replace(apitest.Object(5, "", "10.0.0.1", "10.0.0.2"), `80,"weight":1}]`, `80,"weight":-1}]`, 1),
		strings.Replace(apitest.Object(6, "", "10.0.0.1", "10.0.0.2"), `80,"weight":1}]`, `80,"weight":"x"}]`, 1),
		`{"apiVersion":"v2","kind":"lb","spec":{}}`,
		`{"kind":"lb"}`,
	}, ",") + `]}`)
	var got []string
	for _, one := range e.Errors {
		other := ""
		if one.Other != nil {
			other = fmt.Sprint(" as ", *one.Other)
		}
		got = append(got, fmt.Sprintf("%d %s%s", one.Index, one.Field, other))
	}
	want := []string{
		"1 serviceArguments.mode", "2 serviceArguments.port", "3 serviceArguments.shade", "3 serviceArguments.hue", "4 kind", "5 hostName", "6  as 0", "7 spec",
		"8 endpoints[1].weight", "9 endpoints[1].weight", "10 apiVersion", "11 spec",
	}
	if diff := cmp.Diff(want, got); diff != "" || code != 400 || !strings.HasPrefix(e.Message, "nothing was changed: 12 errors in 12 objects, the first in objects[1]: ") {
		t.Errorf("got code %d with %s, want 400; the errors differ (-want +got):\n%s", code, e.Message, diff)
	}
	if n := len(b.List()); n != 0 {
		t.Errorf("%d services", n)
	}
	for body, field := range map[string]string{
		`{"objects":[]}`: "objects", `{"objects":[` + good + `],"confirm":-1}`: "confirm", `{"objects":[` + good + `],"prune":["x"]}`: "prune",
		`{"objects":[` + good + `],"doing":"` + strings.Repeat("x", 201) + `"}`: "doing", `{"objects":[` + good + `],"x":1}`: "x",
	} {
		if code, _, e := b.Apply(body); code != 400 || e.Field != field {
			t.Errorf("%s: got %d %+v, want code 400 about %s", body, code, e, field)
		}
	}
	// Only the transaction finds overlapping port ranges.
	over := `{"kind":"lb","spec":{"serviceArguments":{"externalIP":"20.20.20.1","port":70,"portMax":%d,"protocol":"tcp"},` +
		`"endpoints":[{"endpointIP":"10.0.0.1","targetPort":80,"weight":1}]}}`
	code, _, e = b.Apply(`{"objects":[` + fmt.Sprintf(over, 90) + "," + good + "," + fmt.Sprintf(over, 91) + `]}`)
	if code != 400 || len(e.Errors) != 1 || e.Errors[0].Index != 2 || len(b.List()) != 0 {
		t.Errorf("got %d %+v, want code 400, 1 element in e.Errors, e.Errors[0].Index == 2, no services", code, e)
	}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	b.Apply(`{"objects":[` + apitest.Object(1, "", "10.0.0.1", "10.0.0.2") + "," + apitest.Object(2, "", "10.0.0.1") + "," + apitest.Object(3,
		`,"managed":true`, "10.0.0.1") + "," + apitest.Object(4, "", "10.0.0.1") + `]}`)
	for n, active := range map[byte]uint64{1: 30, 2: 7, 3: 1, 4: 2} {
		k := lb.Key{VIP: netip.AddrFrom4([4]byte{20, 20, 20, n}), Port: 80, Protocol: lb.TCP}
		b.Fake.Stats[k] = report.ServiceStats{EndpointStats: report.EndpointStats{Active: active}, Endpoints: []report.EndpointStats{{Active: 10}, {Active: 20}}}
	}
	gone := netip.MustParseAddrPort("10.0.0.2:80")
	at := report.Connection{Protocol: lb.TCP, Dst: netip.MustParseAddrPort("20.20.20.1:80"), ConfiguredEndpoint: gone, Service: "20.20.20.1:80/tcp", State: "est"}
	over, kept, reply, other := at, at, at, at
	over.State = "closed"
	kept.ConfiguredEndpoint, reply.Reply, other.Dst = netip.MustParseAddrPort("10.0.0.1:80"), true, netip.MustParseAddrPort("20.20.20.9:80")
	b.Fake.Conns = []report.Connection{at, at, over, kept, reply, other}
	before := b.Store.Snapshot().Revision()
	_, r, _ := b.Apply(`{"dryRun":true,"prune":["lb"],"objects":[` + apitest.Object(1, `,"sel":1,"name":"web"`, "10.0.0.1", "10.0.0.3") + "," +
		apitest.Object(4, "", "10.0.0.1") + "," + apitest.Object(5, "", "10.0.0.1") + `]}`)
	want := "change Loadbalancer 20.20.20.1:80/tcp [endpoints[10.0.0.2 80].endpointIP: 10.0.0.2 -> ] [endpoints[10.0.0.2 80].targetPort: 80 -> ] " +
		"[endpoints[10.0.0.2 80].weight: 1 -> ]" +
		" [endpoints[10.0.0.3 80].endpointIP:  -> 10.0.0.3] [endpoints[10.0.0.3 80].targetPort:  -> 80] [endpoints[10.0.0.3 80].weight:  -> 1]" +
		" [serviceArguments.name:  -> web] [serviceArguments.sel: 0 -> 1] 2 of 3; " +
		"remove Loadbalancer 20.20.20.2:80/tcp pruned; add Loadbalancer 20.20.20.5:80/tcp; 1 unchanged"
	if diff := cmp.Diff(want, apitest.DescribeChanges(r)); diff != "" {
		t.Errorf("the changes differ (-want +got):\n%s", diff)
	}
	if now := b.Store.Snapshot().Revision(); now != before {
		t.Errorf("revision %d, and was %d", now, before)
	}
	// Applied, prune keeps the managed service and other kinds.
	_, r, _ = b.Apply(`{"prune":["all"],"objects":[` + apitest.Object(1, "", "10.0.0.1", "10.0.0.2") + `]}`)
	if got := apitest.DescribeChanges(r); got != "remove Loadbalancer 20.20.20.2:80/tcp pruned; remove Loadbalancer 20.20.20.4:80/tcp pruned; 1 unchanged" {
		t.Errorf("got %v, "+
			`want "remove Loadbalancer 20.20.20.2:80/tcp pruned; remove Loadbalancer 20.20.20.4:80/tcp pruned; 1 unchanged"`,
			got)
	}
}

// lateConfirm checks that a late confirmation fails with the revision that rolled the change back.
func lateConfirm(t *testing.T, b *apitest.Bench) {
	t.Helper()
	_, r, _ := b.Apply(`{"objects":[` + apitest.Object(9, "", "10.0.0.1") + `],"confirm":1}`)
	await.True(t, 10*time.Second, "the change is rolled back", func() bool {
		b.Store.RollBackIfDue(slog.New(slog.DiscardHandler))
		return b.Store.Snapshot().Revision() > r.Revision
	})
	want := fmt.Sprintf("by revision %d", r.Revision+1)
	if w := b.Call("POST", httpapi.BaseURL+"/config/confirm", "{}"); w.Code != 404 ||
		!strings.Contains(w.Body.String(), "was rolled back at ") || !strings.Contains(w.Body.String(), want) {
		t.Errorf("%d %s, want %s", w.Code, w.Body, want)
	}
}

// confirmTwice checks that a second confirmation does not report an older revision that was rolled
// back.
func confirmTwice(t *testing.T, b *apitest.Bench) {
	t.Helper()
	b.Apply(`{"objects":[` + apitest.Object(8, "", "10.0.0.1") + `],"confirm":3600}`)
	if w := b.Call("POST", httpapi.BaseURL+"/config/confirm", "{}"); w.Code != 200 {
		t.Fatalf("got %d %s, want code 200", w.Code, w.Body)
	}
	if w := b.Call("POST", httpapi.BaseURL+"/config/confirm", "{}"); w.Code != 404 || strings.Contains(w.Body.String(), "rolled back") {
		t.Errorf(`got %d %s, want code 404, no "rolled back" in the body`, w.Code, w.Body)
	}
}

func TestConfirmAndRollback(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	b.Apply(`{"objects":[` + apitest.Object(1, "", "10.0.0.1") + `],"doing":"first"}`)
	_, r, _ := b.Apply(`{"objects":[` + apitest.Object(1, "", "10.0.0.2") + "," + apitest.Object(2, "", "10.0.0.2") + "," + apitest.Object(3,
		`,"managed":true`, "10.0.0.2") + `],"confirm":3600}`)
	if r.Revision != 2 || r.Confirm == nil {
		t.Fatalf("got %+v, want r.Revision == 2, r.Confirm != nil", r)
	}
	if code, _, e := b.Apply(`{"objects":[` + apitest.Object(1, "", "10.0.0.3") + `],"confirm":60}`); code != 409 ||
		!strings.HasPrefix(e.Message, "revision 2 waits for confirmation until ") {
		t.Errorf(`got %d %+v, want code 409, message begins with "revision 2 waits for confirmation until "`,
			code, e)
	}
	post := func(path, body string, code int) string {
		t.Helper()
		w := b.Call("POST", httpapi.BaseURL+path, body)
		if w.Code != code {
			t.Errorf("got %s %s: %d %s, want code %d", path, body, w.Code, w.Body, code)
		}
		return w.Body.String()
	}
	if got := b.Call("GET", httpapi.BaseURL+"/config/revisions", "").Body.String(); !strings.Contains(got, `"revision":2`) || !strings.Contains(got, `"confirm"`) ||
		!strings.Contains(got, `"who":"root"`) {
		t.Errorf("got %v, want `\"revision\":2`, `\"confirm\"` and `\"who\":\"root\"` in got", got)
	}
	post("/config/confirm", `{"revision":1}`, 404)
	if got := post("/config/confirm", `{}`, 200); !strings.Contains(got, `"message":"revision 2 confirmed`) {
		t.Errorf("confirm: %s", got)
	}
	if got := post("/config/confirm", `{}`, 404); strings.Contains(got, "rolled back") {
		t.Errorf(`got %v, want no "rolled back" in got`, got)
	}
	lateConfirm(t, b)
	var plan v1.ApplyResult
	if err := json.Unmarshal([]byte(post("/config/rollback", `{"revision":1,"dryRun":true}`, 200)), &plan); err != nil ||
		apitest.DescribeChanges(plan) != "change Loadbalancer 20.20.20.1:80/tcp "+
			"[endpoints[10.0.0.1 80].endpointIP:  -> 10.0.0.1] [endpoints[10.0.0.1 80].targetPort:  -> 80] [endpoints[10.0.0.1 80].weight:  -> 1] "+
			"[endpoints[10.0.0.2 80].endpointIP: 10.0.0.2 -> ] [endpoints[10.0.0.2 80].targetPort: 80 -> ] [endpoints[10.0.0.2 80].weight: 1 -> ]; "+
			"remove Loadbalancer 20.20.20.2:80/tcp; 0 unchanged" || fmt.Sprint(plan.Kept) != "[service 20.20.20.3:80/tcp]" {
		t.Errorf("got error %v, the plan %s, and kept objects %v", err, apitest.DescribeChanges(plan), plan.Kept)
	}
	post("/config/rollback", `{"revision":1}`, 200)
	if list := b.List(); len(list) != 2 || list[0].Endpoints[0].EndpointIP != "10.0.0.1" {
		t.Errorf(`got %+v, want 2 elements, list[0].Endpoints[0].EndpointIP == "10.0.0.1"`, list)
	}
	post("/config/rollback", `{"revision":1,"managed":true}`, 200)
	if list := b.List(); len(list) != 1 {
		t.Errorf("got %+v, want 1 element", list)
	}
	post("/config/rollback", `{"revision":2}`, 200) // rolls the rollback back
	if list := b.List(); len(list) != 2 {
		t.Errorf("got %+v, want 2 elements", list)
	}
	post("/config/rollback", `{}`, 400)
	if got := post("/config/rollback", `{"revision":99}`, 404); !strings.Contains(got, "revision 99 not found (available: 1-7)") {
		t.Errorf(`got %v, want "revision 99 not found (available: 1-7)" in got`, got)
	}
}

// TestConfirmTwice checks that a rollback of an earlier change is not reported after a later change
// was confirmed.
func TestConfirmTwice(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	lateConfirm(t, b)
	confirmTwice(t, b)
}

// TestObjectsRoundTrip checks that apply restores exactly what was saved, for random services.
func TestObjectsRoundTrip(t *testing.T) {
	t.Parallel()
	b, other := apitest.New(t, nil), apitest.New(t, nil)
	random := rand.New(rand.NewPCG(3, 4))
	_, _, err := b.Store.Commit(objects.Owner, func(tx *store.Tx) error {
		for i := range 300 {
			if err := b.Store.Services.Put(tx, randomService(random, i)); err != nil {
				return err
			}
		}
		d := lb.Drain{Addr: netip.MustParseAddr("10.0.0.1"), Port: 80, Rate: 7, Deadline: time.Now().Add(time.Hour)}
		if err := b.Store.Drains.Put(tx, d); err != nil {
			return err
		}
		e := lb.EndpointProbe{Addr: netip.MustParseAddr("10.0.0.1"), Name: "x"}
		e.Probe.Type, e.Probe.Port, e.Probe.Interval = lb.ProbeTCP, 90, 1500*time.Millisecond
		return b.Store.Endpoints.Put(tx, e.Normal())
	})
	if err != nil {
		t.Fatal(err)
	}
	saved := b.Call("GET", httpapi.BaseURL+"/config/objects", "").Body.String()
	if code, r, e := other.Apply(saved); code != 200 || len(r.Changes) != 302 {
		t.Fatalf("%d %+v %d changes", code, e, len(r.Changes))
	}
	if diff := cmp.Diff(saved, other.Call("GET", httpapi.BaseURL+"/config/objects", "").Body.String()); diff != "" {
		t.Errorf("the result differs (-want +got):\n%s", diff)
	}
	if !strings.Contains(saved, `"probeDuration":2,"probeInterval":"1.5s"`) { // the form that the existing loxilb reads
		t.Errorf("got %v, want `\"probeDuration\":2,\"probeInterval\":\"1.5s\"` in saved", saved)
	}
	schema := lb.NewSchema()
	for s := range b.Store.Services.All(b.Store.Snapshot()) {
		if got, ok := other.Store.Services.Get(other.Store.Snapshot(), s.Key); !ok || !schema.Equal(s, got) {
			t.Errorf("%s became %s", s, got)
		}
	}
	if code, r, _ := b.Apply(saved); code != 200 || apitest.DescribeChanges(r) != "302 unchanged" {
		t.Errorf(`got %d %s, want code 200, "302 unchanged"`, code, apitest.DescribeChanges(r))
	}
	if w := b.Call("GET", httpapi.BaseURL+"/config/objects?kind=ep,drain", ""); strings.Count(w.Body.String(), `"kind"`) != 2 {
		t.Errorf("got %v, want `\"kind\"` twice in the body", w.Body)
	}
	if w := b.Call("GET", httpapi.BaseURL+"/config/objects?kind=x", ""); w.Code != 400 || !strings.Contains(w.Body.String(), "(allowed: Vlan, VlanMember, ") {
		t.Errorf("got %v, want code 400", w.Body)
	}
}

// randomService returns a service with random fields.
func randomService(r *rand.Rand, i int) lb.Service {
	for range 1000 {
		endpoints := make([]string, 1+r.IntN(5))
		for n := range endpoints {
			endpoints[n] = fmt.Sprintf("192.168.%d.%d:%d:%d", n, r.IntN(200), 1+r.IntN(60000), r.IntN(256))
		}
		text := fmt.Sprintf("10.%d.%d.%d:%d/%s mode=%s select=%s endpoints=%s", r.IntN(200), i/200, i%200, 1+r.IntN(1000), pick(r, "tcp", "udp"),
			pick(r, "default", "onearm", "fullnat"), pick(r, "rr", "hash", "priority", "persist", "lc"), strings.Join(endpoints, ","))
		for _, more := range []string{"name=n" + fmt.Sprint(r.IntN(9)), "idle=60s", "monitor=true", "maxrate=9", "egress=true"} {
			if r.IntN(3) == 0 {
				text += " " + more
			}
		}
		if s, err := lb.ParseService(text); err == nil && s.Validate() == nil {
			return s
		}
	}
	panic("no random text is a valid service")
}

func pick(r *rand.Rand, words ...string) string { return words[r.IntN(len(words))] }

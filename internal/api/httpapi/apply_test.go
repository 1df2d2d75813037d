package httpapi

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
	"loxilb/internal/api/httpapi/objects"
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
)

// object returns a service as an object of a list: its last byte, and its endpoints.
func object(n int, rest string, endpoints ...string) string {
	for i, e := range endpoints {
		endpoints[i] = `{"endpointIP":"` + e + `","targetPort":80,"weight":1}`
	}
	return fmt.Sprintf(`{"kind":"lb","spec":{"serviceArguments":{"externalIP":"20.20.20.%d","port":80,"protocol":"tcp"%s},"endpoints":[%s]}}`, n, rest, strings.Join(endpoints, ","))
}

func (b *bench) apply(body string) (int, v1.ApplyResult, v1.Error) {
	b.t.Helper()
	w := b.call("POST", BaseURL+"/config/apply", body)
	var r v1.ApplyResult
	if w.Code != 200 {
		return w.Code, r, problemOf(b.t, w)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil {
		b.t.Fatal(err)
	}
	return w.Code, r, v1.Error{}
}

func said(r v1.ApplyResult) string {
	var b strings.Builder
	for _, c := range r.Changes {
		fmt.Fprintf(&b, "%s %s %s", c.Action, c.Kind, c.Name)
		for _, f := range c.Fields {
			fmt.Fprintf(&b, " [%s: %s -> %s]", f.Field, f.Before, f.After)
		}
		if c.Pruned {
			b.WriteString(" pruned")
		}
		if c.Connections > 0 {
			fmt.Fprintf(&b, " %d of %d", c.Cut, c.Connections)
		}
		b.WriteString("; ")
	}
	return fmt.Sprintf("%s%d unchanged", b.String(), r.Unchanged)
}

func TestApply(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	const endpoint = `{"kind":"Endpoint","spec":{"hostName":"10.0.0.9"}}`
	const drain = `{"apiVersion":"netlox/v1","kind":"Drain","spec":{"endpoint":"10.0.0.1"}}`
	for _, c := range []struct{ body, want string }{
		{object(1, "", "10.0.0.1") + "," + object(2, "", "10.0.0.1", "10.0.0.2") + "," + endpoint + "," + drain,
			"add Endpoint 10.0.0.9_ping_0; add Loadbalancer 20.20.20.1:80/tcp; add Loadbalancer 20.20.20.2:80/tcp; add Drain 10.0.0.1; 0 unchanged"},
		{object(1, "", "10.0.0.1") + "," + object(2, `,"sel":1`, "10.0.0.1") + "," + endpoint, "change Loadbalancer 20.20.20.2:80/tcp; 2 unchanged"},
		{object(1, "", "10.0.0.1") + "," + drain, "2 unchanged"},
	} {
		if code, r, e := b.apply(`{"objects":[` + c.body + `]}`); code != 200 || said(r) != c.want || r.Result != "Success" {
			t.Errorf("%s\n%d %s %+v, want %s", c.body, code, said(r), e, c.want)
		}
	}
	if code, r, _ := b.apply(`{"remove":true,"objects":[` + object(1, "") + "," + object(9, "") + "," + endpoint + `]}`); code != 200 ||
		said(r) != "remove Endpoint 10.0.0.9_ping_0; remove Loadbalancer 20.20.20.1:80/tcp; 1 unchanged" {
		t.Errorf("%d %s", code, said(r))
	}
	if list := b.list(); len(list) != 1 || list[0].ServiceArguments.ExternalIP != "20.20.20.2" {
		t.Errorf("%+v", list)
	}
}

// TestApplyMetadata: the name of a service and the number of a VLAN may stand in the metadata, as
// the existing loxilb has them.
func TestApplyMetadata(t *testing.T) {
	t.Parallel()
	b := newNetBench(t)
	with := func(metadata, object string) string {
		return strings.Replace(object, `{"kind"`, `{"metadata":`+metadata+`,"kind"`, 1)
	}
	for _, c := range []struct{ object, want string }{
		{with(`{"name":"test","vid":0}`, object(1, "", "10.0.0.1")), "add Loadbalancer 20.20.20.1:80/tcp; 0 unchanged"},
		{with(`{"name":"test"}`, object(1, "", "10.0.0.1")), "1 unchanged"},
		{with(`{"name":"x"}`, object(2, `,"name":"own"`, "10.0.0.1")), "add Loadbalancer 20.20.20.2:80/tcp; 0 unchanged"},
		{`{"kind":"Vlan","metadata":{"name":"v","vid":100}}`, "add Vlan 100; 0 unchanged"},
		{`{"kind":"Vlan","metadata":{"vid":101},"spec":{}}`, "add Vlan 101; 0 unchanged"},
	} {
		if code, r, e := b.apply(`{"objects":[` + c.object + `]}`); code != 200 || said(r) != c.want {
			t.Errorf("%s: %d %s %+v, want %s", c.object, code, said(r), e, c.want)
		}
	}
	for i, want := range []string{"test", "own"} {
		if got := b.list()[i].ServiceArguments.Name; got != want {
			t.Errorf("service %d is %q, want %q", i, got, want)
		}
	}
	for bad, field := range map[string]string{
		with(`{"name":5}`, object(3, "", "10.0.0.1")): "metadata.name", with(`[]`, object(3, "", "10.0.0.1")): "metadata",
		`{"kind":"Vlan","metadata":{"vid":"x"}}`: "metadata.vid", `{"kind":"Vlan"}`: "metadata.vid", `{"kind":"Vlan","metadata":{"vid":5000}}`: "vid",
	} {
		if code, _, e := b.apply(`{"objects":[` + bad + `]}`); code != 400 || len(e.Errors) != 1 || e.Errors[0].Field != field {
			t.Errorf("%s: %d %+v", bad, code, e)
		}
	}
}

// Nothing is changed by a list of which anything is refused, and all that is wrong is said.
func TestApplyRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	good := object(1, "", "10.0.0.1")
	code, _, e := b.apply(`{"objects":[` + strings.Join([]string{
		good,
		object(2, `,"mode":9`, "10.0.0.1"),
		object(3, `,"port":"x","colour":1,"name":"a"`, "10.0.0.1"),
		object(4, `,"shade":1,"hue":2`, "10.0.0.1"),
		`{"kind":"Unicorn","spec":{}}`,
		`{"kind":"ep","spec":{"hostName":"nowhere"}}`,
		good,
		`{"kind":"lb","spec":7}`,
		strings.Replace(object(5, "", "10.0.0.1", "10.0.0.2"), `80,"weight":1}]`, `80,"weight":-1}]`, 1),
		strings.Replace(object(6, "", "10.0.0.1", "10.0.0.2"), `80,"weight":1}]`, `80,"weight":"x"}]`, 1),
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
		t.Errorf("%d %s %s", code, e.Message, diff)
	}
	if n := len(b.list()); n != 0 {
		t.Errorf("%d services", n)
	}
	for body, field := range map[string]string{
		`{"objects":[]}`: "objects", `{"objects":[` + good + `],"confirm":-1}`: "confirm", `{"objects":[` + good + `],"prune":["x"]}`: "prune",
		`{"objects":[` + good + `],"doing":"` + strings.Repeat("x", 201) + `"}`: "doing", `{"objects":[` + good + `],"x":1}`: "x",
	} {
		if code, _, e := b.apply(body); code != 400 || e.Field != field {
			t.Errorf("%s: %d %+v", body, code, e)
		}
	}
	// What shows when it is tried: a range over another one.
	over := `{"kind":"lb","spec":{"serviceArguments":{"externalIP":"20.20.20.1","port":70,"portMax":%d,"protocol":"tcp"},"endpoints":[{"endpointIP":"10.0.0.1","targetPort":80,"weight":1}]}}`
	code, _, e = b.apply(`{"objects":[` + fmt.Sprintf(over, 90) + "," + good + "," + fmt.Sprintf(over, 91) + `]}`)
	if code != 400 || len(e.Errors) != 1 || e.Errors[0].Index != 2 || len(b.list()) != 0 {
		t.Errorf("%d %+v", code, e)
	}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.apply(`{"objects":[` + object(1, "", "10.0.0.1", "10.0.0.2") + "," + object(2, "", "10.0.0.1") + "," + object(3, `,"managed":true`, "10.0.0.1") + "," + object(4, "", "10.0.0.1") + `]}`)
	for n, active := range map[byte]uint64{1: 30, 2: 7, 3: 1, 4: 2} {
		k := lb.Key{VIP: netip.AddrFrom4([4]byte{20, 20, 20, n}), Port: 80, Protocol: lb.TCP}
		b.fake.stats[k] = lb.ServiceStats{EndpointStats: lb.EndpointStats{Active: active}, Endpoints: []lb.EndpointStats{{Active: 10}, {Active: 20}}}
	}
	gone := netip.MustParseAddrPort("10.0.0.2:80")
	at := lb.Connection{Protocol: lb.TCP, Dst: netip.MustParseAddrPort("20.20.20.1:80"), Of: gone, Service: "20.20.20.1:80/tcp", State: "est"}
	over, kept, reply, other := at, at, at, at
	over.State = "closed"
	kept.Of, reply.Reply, other.Dst = netip.MustParseAddrPort("10.0.0.1:80"), true, netip.MustParseAddrPort("20.20.20.9:80")
	b.fake.connections = []lb.Connection{at, at, over, kept, reply, other}
	before := b.store.Snapshot().Revision()
	_, r, _ := b.apply(`{"dryRun":true,"prune":["lb"],"objects":[` + object(1, `,"sel":1,"name":"web"`, "10.0.0.1", "10.0.0.3") + "," + object(4, "", "10.0.0.1") + "," + object(5, "", "10.0.0.1") + `]}`)
	want := "change Loadbalancer 20.20.20.1:80/tcp [endpoints[10.0.0.2 80].endpointIP: 10.0.0.2 -> ] [endpoints[10.0.0.2 80].targetPort: 80 -> ] [endpoints[10.0.0.2 80].weight: 1 -> ]" +
		" [endpoints[10.0.0.3 80].endpointIP:  -> 10.0.0.3] [endpoints[10.0.0.3 80].targetPort:  -> 80] [endpoints[10.0.0.3 80].weight:  -> 1]" +
		" [serviceArguments.name:  -> web] [serviceArguments.sel: 0 -> 1] 2 of 3; " +
		"remove Loadbalancer 20.20.20.2:80/tcp pruned; add Loadbalancer 20.20.20.5:80/tcp; 1 unchanged"
	if diff := cmp.Diff(want, said(r)); diff != "" {
		t.Error(diff)
	}
	if now := b.store.Snapshot().Revision(); now != before {
		t.Errorf("revision %d, and was %d", now, before)
	}
	// The same, done: the managed one and other kinds stay.
	_, r, _ = b.apply(`{"prune":["all"],"objects":[` + object(1, "", "10.0.0.1", "10.0.0.2") + `]}`)
	if got := said(r); got != "remove Loadbalancer 20.20.20.2:80/tcp pruned; remove Loadbalancer 20.20.20.4:80/tcp pruned; 1 unchanged" {
		t.Error(got)
	}
}

// lateConfirm: who confirms too late is told that it was undone, and by which revision.
func lateConfirm(t *testing.T, b *bench) {
	t.Helper()
	_, r, _ := b.apply(`{"objects":[` + object(9, "", "10.0.0.1") + `],"confirm":1}`)
	time.Sleep(time.Until(*r.Confirm))
	b.store.RollBackIfDue(slog.New(slog.DiscardHandler))
	want := fmt.Sprintf("by revision %d", r.Revision+1)
	if w := b.call("POST", BaseURL+"/config/confirm", "{}"); w.Code != 404 || !strings.Contains(w.Body.String(), "was rolled back at ") || !strings.Contains(w.Body.String(), want) {
		t.Errorf("%d %s, want %s", w.Code, w.Body, want)
	}
}

// confirmTwice: a second confirmation after a good one does not report an older revision that was
// undone.
func confirmTwice(t *testing.T, b *bench) {
	t.Helper()
	b.apply(`{"objects":[` + object(8, "", "10.0.0.1") + `],"confirm":3600}`)
	if w := b.call("POST", BaseURL+"/config/confirm", "{}"); w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if w := b.call("POST", BaseURL+"/config/confirm", "{}"); w.Code != 404 || strings.Contains(w.Body.String(), "undone") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestConfirmAndRollback(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.apply(`{"objects":[` + object(1, "", "10.0.0.1") + `],"doing":"first"}`)
	_, r, _ := b.apply(`{"objects":[` + object(1, "", "10.0.0.2") + "," + object(2, "", "10.0.0.2") + "," + object(3, `,"managed":true`, "10.0.0.2") + `],"confirm":3600}`)
	if r.Revision != 2 || r.Confirm == nil {
		t.Fatalf("%+v", r)
	}
	if code, _, e := b.apply(`{"objects":[` + object(1, "", "10.0.0.3") + `],"confirm":60}`); code != 409 || !strings.HasPrefix(e.Message, "revision 2 waits for confirmation until ") {
		t.Errorf("%d %+v", code, e)
	}
	post := func(path, body string, code int) string {
		t.Helper()
		w := b.call("POST", BaseURL+path, body)
		if w.Code != code {
			t.Errorf("%s %s: %d %s", path, body, w.Code, w.Body)
		}
		return w.Body.String()
	}
	if got := b.call("GET", BaseURL+"/config/revisions", "").Body.String(); !strings.Contains(got, `"revision":2`) || !strings.Contains(got, `"confirm"`) ||
		!strings.Contains(got, `"who":"root","from":"192.0.2.1"`) && !strings.Contains(got, `"who":"root"`) {
		t.Error(got)
	}
	post("/config/confirm", `{"revision":1}`, 404)
	if got := post("/config/confirm", `{}`, 200); !strings.Contains(got, `"message":"revision 2 confirmed`) {
		t.Errorf("confirm: %s", got)
	}
	if got := post("/config/confirm", `{}`, 404); strings.Contains(got, "undone") {
		t.Error(got)
	}
	lateConfirm(t, b)
	var plan v1.ApplyResult
	if err := json.Unmarshal([]byte(post("/config/rollback", `{"revision":1,"dryRun":true}`, 200)), &plan); err != nil ||
		said(plan) != "change Loadbalancer 20.20.20.1:80/tcp "+
			"[endpoints[10.0.0.1 80].endpointIP:  -> 10.0.0.1] [endpoints[10.0.0.1 80].targetPort:  -> 80] [endpoints[10.0.0.1 80].weight:  -> 1] "+
			"[endpoints[10.0.0.2 80].endpointIP: 10.0.0.2 -> ] [endpoints[10.0.0.2 80].targetPort: 80 -> ] [endpoints[10.0.0.2 80].weight: 1 -> ]; "+
			"remove Loadbalancer 20.20.20.2:80/tcp; 0 unchanged" || fmt.Sprint(plan.Kept) != "[service 20.20.20.3:80/tcp]" {
		t.Errorf("%v %s %v", err, said(plan), plan.Kept)
	}
	post("/config/rollback", `{"revision":1}`, 200)
	if list := b.list(); len(list) != 2 || list[0].Endpoints[0].EndpointIP != "10.0.0.1" {
		t.Errorf("%+v", list)
	}
	post("/config/rollback", `{"revision":1,"managed":true}`, 200)
	if list := b.list(); len(list) != 1 {
		t.Errorf("%+v", list)
	}
	post("/config/rollback", `{"revision":2}`, 200) // going back on going back
	if list := b.list(); len(list) != 2 {
		t.Errorf("%+v", list)
	}
	post("/config/rollback", `{}`, 400)
	if got := post("/config/rollback", `{"revision":99}`, 404); !strings.Contains(got, "revision 99 not found (available: 1-7)") {
		t.Error(got)
	}
}

// TestConfirmTwice: what an earlier change was undone for is no news after a later one was
// confirmed.
func TestConfirmTwice(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	lateConfirm(t, b)
	confirmTwice(t, b)
}

// What is saved is what apply makes of it: exactly, for random services.
func TestObjectsRoundTrip(t *testing.T) {
	t.Parallel()
	b, other := newBench(t, nil), newBench(t, nil)
	random := rand.New(rand.NewPCG(3, 4))
	_, _, err := b.store.Commit(objects.Owner, func(tx *store.Tx) error {
		for i := range 300 {
			if err := b.store.Services.Put(tx, randomService(random, i)); err != nil {
				return err
			}
		}
		d := lb.Drain{Addr: netip.MustParseAddr("10.0.0.1"), Port: 80, Rate: 7, Deadline: time.Now().Add(time.Hour)}
		if err := b.store.Drains.Put(tx, d); err != nil {
			return err
		}
		e := lb.EndpointProbe{Addr: netip.MustParseAddr("10.0.0.1"), Name: "x"}
		e.Probe.Type, e.Probe.Port, e.Probe.Interval = lb.ProbeTCP, 90, 1500*time.Millisecond
		return b.store.Endpoints.Put(tx, e.Normal())
	})
	if err != nil {
		t.Fatal(err)
	}
	saved := b.call("GET", BaseURL+"/config/objects", "").Body.String()
	if code, r, e := other.apply(saved); code != 200 || len(r.Changes) != 302 {
		t.Fatalf("%d %+v %d changes", code, e, len(r.Changes))
	}
	if diff := cmp.Diff(saved, other.call("GET", BaseURL+"/config/objects", "").Body.String()); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(saved, `"probeDuration":2,"probeInterval":"1.5s"`) { // which the existing loxilb reads
		t.Error(saved)
	}
	schema := lb.NewSchema()
	for s := range b.store.Services.All(b.store.Snapshot()) {
		if got, ok := other.store.Services.Get(other.store.Snapshot(), s.Key); !ok || !schema.Equal(s, got) {
			t.Errorf("%s became %s", s, got)
		}
	}
	if code, r, _ := b.apply(saved); code != 200 || said(r) != "302 unchanged" {
		t.Errorf("%d %s", code, said(r))
	}
	if w := b.call("GET", BaseURL+"/config/objects?kind=ep,drain", ""); strings.Count(w.Body.String(), `"kind"`) != 2 {
		t.Error(w.Body)
	}
	if w := b.call("GET", BaseURL+"/config/objects?kind=x", ""); w.Code != 400 {
		t.Error(w.Body)
	}
}

// randomService has some of what a service may have.
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
	panic("the text of services is another one")
}

func pick(r *rand.Rand, words ...string) string { return words[r.IntN(len(words))] }

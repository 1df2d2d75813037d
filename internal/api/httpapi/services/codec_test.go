package services

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	v1 "loxilb/api/v1"
	"loxilb/internal/control/servicestate"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// TestEveryPropertyIsAField checks that every property of the API is a field of lb, is refused as
// unsupported, or is listed here.
func TestEveryPropertyIsAField(t *testing.T) {
	t.Parallel()
	const args = "serviceArguments."
	other := map[string]string{
		args + "oper":      "replaces, adds or removes endpoints",
		args + "select":    "another name of sel",
		args + "privateIP": "an address of secondaryIPs, and of snatIPs",

		args + "probeTimeout": "another name of probeInterval, in seconds",
	}
	known := append(slices.Collect(maps.Keys(other)), "observedState")
	for _, f := range append(lb.KeyFields(), lb.Fields()...) {
		if f.Name != lb.FieldEndpoints {
			known = append(known, f.Property)
		}
	}
	for _, u := range newCodec(false).unavailable {
		known = append(known, args+u.Name)
	}
	compareNames(t, known, slices.Collect(maps.Keys(v1.PropertiesOf[v1.LoadbalanceEntry]())))

	known = []string{"state", "counter", "standby", "drained", "panic", "share", "observedState", "source"}
	for _, f := range lb.EndpointFields() {
		known = append(known, f.Property)
	}
	compareNames(t, known, slices.Collect(maps.Keys(v1.PropertiesOf[v1.Endpoint]())))

	known = []string{ // shared properties, an alias of probeInterval, and observed state
		"probeDuration", "minDelay", "avgDelay", "maxDelay", "currState", "observedState", "evidence", "object", "services",
	}
	for _, f := range lb.EndpointProbeFields() {
		known = append(known, f.Property)
	}
	compareNames(t, known, slices.Collect(maps.Keys(v1.PropertiesOf[v1.EndpointProbe]())))

	known = []string{"host"}
	for _, f := range lb.KeyFields() {
		known = append(known, keyProperty(f.Property))
	}
	compareNames(t, known, slices.Collect(maps.Keys(v1.PropertiesOf[v1.ServiceKey]())))

	// A request can have every property of an entry.
	request, entry := reflect.TypeFor[v1.LoadbalanceRequest](), reflect.TypeFor[v1.LoadbalanceEntry]()
	for i := range entry.NumField() {
		f := entry.Field(i)
		if g, ok := request.FieldByName(f.Name); !ok || g.Type != f.Type && g.Type != reflect.PointerTo(f.Type) {
			t.Errorf("LoadbalanceRequest has no %s like that of LoadbalanceEntry", f.Name)
		}
	}
}

// TestDescriptionHasEveryWord checks that the API's description lists every word, with its number
// if it has one.
func TestDescriptionHasEveryWord(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../../../api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var api struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]struct{ Description string }
			}
		}
	}
	if err := yaml.Unmarshal(data, &api); err != nil {
		t.Fatal(err)
	}
	for _, f := range append(lb.KeyFields(), lb.Fields()...) {
		name, ok := strings.CutPrefix(f.Property, "serviceArguments.")
		if !ok {
			continue
		}
		text := strings.Join(strings.Fields(api.Components.Schemas["ServiceArguments"].Properties[name].Description), " ")
		for _, c := range f.Choices() {
			word := c.Word
			if f.Numbered {
				word = strconv.Itoa(c.Number) + " " + c.Word
			}
			if !strings.Contains(text, word) {
				t.Errorf("the description of %s does not mention %s: %s", f.Property, word, text)
			}
		}
	}
}

func compareNames(t *testing.T, fields, properties []string) {
	t.Helper()
	slices.Sort(fields)
	slices.Sort(properties)
	if diff := cmp.Diff(fields, properties); diff != "" {
		t.Errorf("fields (-) and properties (+):\n%s", diff)
	}
}

// TestRoundTrip checks that a service that is encoded as JSON and decoded is the same.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	lines := []string{
		"10.0.0.1:80/tcp endpoints=10.1.0.1:80",
		"10.0.0.1:80-90/udp/mark=4294967295 mode=onearm select=lc endpoints=10.1.0.1:80:0,10.1.0.2:8080-8090:65535 secips=10.0.0.2,10.0.0.3 " +
			"idle=86400s sources=10.0.0.0/8,11.1.1.1/32 snat=10.1.0.3 refuse=pass egress=true managed=true owner=kube-1 " +
			"owner-time=2026-01-31T23:59:59Z name=\"a b\"",
		"[2001:db8::1]:443/tcp mode=dsr select=persist persist-timeout=60s persist-prefix=64 endpoints=10.1.0.1:443,[2001:db8::2]:443 tunnel=gue " +
			"mss=1400 refuse=drop syn-protect=always max-rate=1000000 max-connections=7 client-rate=5 client-connections=1000000000 client-prefix=56 " +
			"deny=2001:db8:bad::/48",
		"10.0.0.1:80/tcp mode=hostonearm owner=kube-1",
		"10.0.0.1:69/udp mode=onearm endpoints=10.1.0.1:69 helper=tftp",
		"10.0.0.1:83/tcp mode=onearm endpoints=10.1.0.1:80 proxy-protocol=true",
		"0.0.0.0:80/tcp mode=hostonearm select=random endpoints=10.1.0.1:80 tunnel=none",
		"10.0.0.1:0/icmp endpoints=10.1.0.1:0 bgp=true bgp-announce=always bgp-med=4294967295 bgp-local-pref=7 bgp-communities=65000:100,no-export " +
			"bgp-prepend=3 bgp-aggregate=10.0.0.0/24",
		"10.0.0.1:81/tcp endpoints=10.1.0.1:80 on-remove=drain on-fail=reset drain-time=30s",
		"10.0.0.1:443/udp select=quic endpoints=10.1.0.1:443#0a,10.1.0.2:443:0@1#0b quic=0,1:4:8f95f09245765f80256934e50c66207f",
		"10.0.0.1:82/tcp endpoints=10.1.0.1:80:2,10.1.0.2:80:3@1,10.1.0.3:80@9 failover-below=50 slow-start=30s",
		"10.0.0.1:80/tcp endpoints=10.1.0.1:80 monitor=true outlier=on all-down=panic probetype=https probeport=81 probereq=/x proberesp=ok probe-interval=5s probe-wait=100ms " +
			"probe-retries=5 probe-rise=7 probe-host=a.example probe-statuses=200-299,404 probe-ca=/ca probe-cert=/cert probe-key=/key",
	}
	written := make(map[string]bool)
	var all []lb.Service
	for _, line := range lines {
		s, err := lb.ParseService(line)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
		for _, f := range lb.Fields() {
			written[f.Name] = written[f.Name] || !f.IsDefault(&s)
		}
	}
	for name, ok := range written {
		if !ok {
			t.Errorf("no line has field %s", name)
		}
	}
	r := rand.New(rand.NewPCG(2, 3))
	for range 500 { // and random ones
		s, from := all[r.IntN(len(lines))].Clone(), all[r.IntN(len(lines))]
		for _, f := range append(lb.KeyFields(), lb.Fields()...) {
			if r.IntN(3) == 0 {
				f.Copy(&s, &from)
			}
		}
		if s.Validate() == nil {
			all = append(all, s)
		}
	}
	if len(all) < 50 {
		t.Errorf("only %d services are valid", len(all))
	}
	for _, s := range all {
		data, err := json.Marshal(plainAnswer(&s))
		if err != nil {
			t.Fatal(err)
		}
		got, bulk, p := newCodec(false).decodeServices(data)
		if p != nil || bulk || !got[0].Equal(s) {
			t.Fatalf("%s\ncame back from %s\nas %v, %v", s, data, got, p)
		}
		// Services in the form that people write them, with words, are the same too.
		words := strings.Replace(string(data), `"mode":`+string(data[strings.Index(string(data), `"mode":`)+7]), `"mode":"`+s.Mode.String()+`"`, 1)
		if got, _, p := newCodec(false).decodeServices([]byte(words)); p != nil || !got[0].Equal(s) {
			t.Fatalf("%s\ncame back from %s\nas %v, %v", s, words, got, p)
		}
	}
}

// FuzzKeys checks that a list of keys is refused with a sentence, or gives valid keys.
func FuzzKeys(f *testing.F) {
	f.Add([]byte(`{"lbAttr":[{"externalIP":"20.20.20.1","port":2020,"protocol":"tcp"}]}`), "false")
	f.Add([]byte(`{"lbAttr":[{"externalIP":"::","port":0,"portMax":-1,"protocol":"icmp","block":7,"host":"x"}]}`), "")
	f.Fuzz(func(t *testing.T, data []byte, bgp string) {
		keys, p := newCodec(false).decodeKeys(data, bgp)
		if p != nil {
			if p.Body.Code < 400 || p.Body.Message == "" {
				t.Fatalf("refused with %+v", p.Body)
			}
			return
		}
		for _, k := range keys {
			if err := k.Validate(); err != nil {
				t.Fatalf("%s: %v", k, err)
			}
		}
	})
}

// TestShare checks that during a slow start the response has the endpoints' current share of their
// weights.
func TestShare(t *testing.T) {
	t.Parallel()
	s, err := lb.ParseService("20.20.20.1:80/tcp slow-start=60s endpoints=31.31.31.1:80:10,32.32.32.1:80:10,33.33.33.1:80:10")
	if err != nil {
		t.Fatal(err)
	}
	stats := &report.ServiceStats{Endpoints: []report.EndpointStats{{Available: true, Share: 0.3}, {Available: true, Share: 1}, {}}}
	endpoints := servicestate.Gather(&s, stats, nil, noHealth{})
	states := servicestate.Of(endpoints, servicestate.SyncApplied)
	for i, want := range []int{30, 0, 0} {
		if got := newCodec(false).answer(&s, stats, endpoints, &states).Endpoints[i].Share; got != want {
			t.Errorf("endpoint %d: %d %%, want %d", i, got, want)
		}
	}
}

// plainAnswer returns a service as the API writes it, without counts or observed state.
func plainAnswer(s *lb.Service) *v1.LoadbalanceEntry {
	endpoints := servicestate.Gather(s, &report.ServiceStats{}, nil, noHealth{})
	states := servicestate.Of(endpoints, servicestate.SyncApplied)
	return newCodec(false).answer(s, &report.ServiceStats{}, endpoints, &states)
}

// noHealth has no health states.
type noHealth struct{}

func (noHealth) EndpointVerdict(*lb.Service, lb.Endpoint) report.Verdict { return report.Verdict{} }

// demo is the service of the README.
const demo = `{"serviceArguments":{"externalIP":"20.20.20.1","port":2020,"protocol":"tcp"},
 "endpoints":[{"endpointIP":"31.31.31.1","targetPort":5001,"weight":1},{"endpointIP":"32.32.32.1","targetPort":5001,"weight":1}]}`

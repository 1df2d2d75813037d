package services

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// FuzzDecode checks that a body is refused with a sentence, or gives valid services that are
// decoded unchanged from the API's response.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(demo))
	f.Add([]byte(`{"lbAttr":[` + demo + `]}`))
	other := strings.ReplaceAll(demo, "20.20.20.1", "20.20.20.2")
	for _, list := range []string{
		demo + "," + other, demo + "," + demo, demo + ",," + other, demo + "," + other + ",", demo + "]," + other,
		demo + ",{]," + other, ",", demo + "}," + other,
	} {
		f.Add([]byte(` { "lbAttr" : [ ` + list + ` ] } `))
	}
	f.Add([]byte(`{"lbAttr":[` + demo + `,` + other))
	f.Add([]byte(`{"lbAttr":[` + demo + `,` + other + `],"lbAttr":[` + demo + `,` + other + `]}`))
	f.Add([]byte(`{"lbAttr":[` + demo + `,` + other + `]} {}`))
	f.Add([]byte(`{"serviceArguments":{"externalIP":"2001:db8::1","port":53,"protocol":"udp","sel":"priority","name":"dns"},` +
		`"endpoints":[{"endpointIP":"2001:db8::2","targetPort":53,"weight":0}]}`))
	f.Add([]byte(`{"serviceArguments":{"sel":{}},"endpoints":null,"x":1}`))
	f.Add([]byte(`{"lbAttr":[{"serviceArguments":{"sel":"\ud800"}}]}`))
	f.Add([]byte(`]}{`))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, _, p := newCodec(false).decodeServices(data)
		o := rest.OutlineOf(data, 1)
		if parts, ok := newCodec(false).decodeParts(&o); ok && (p != nil || !slices.EqualFunc(list, parts, sameRequest)) {
			t.Fatalf("decoded in parts the body gives %v, and as a whole %v, %v", parts, list, p)
		} else if !ok && p == nil && len(o.Parts) > 1 {
			t.Fatalf("refused part by part: %v", list)
		}
		if p != nil {
			if p.Body.Code != http.StatusBadRequest || p.Body.Message == "" {
				t.Fatalf("refused with %+v", p.Body)
			}
			return
		}
		answer := v1.LoadbalanceList{LbAttr: []v1.LoadbalanceEntry{}}
		for _, s := range list {
			if err := s.Validate(); err != nil {
				t.Fatalf("%s: %v", s, err)
			}
			answer.LbAttr = append(answer.LbAttr, *plainAnswer(&s.Service))
		}
		out, err := json.Marshal(answer)
		if err != nil {
			t.Fatal(err)
		}
		again, _, p := newCodec(false).decodeServices(out)
		if p != nil {
			t.Fatalf("an accepted service is refused when it is sent back: %v\n%s", p, out)
		}
		for i := range list {
			if !list[i].Equal(again[i].Service) {
				t.Fatalf("%s came back as %s", list[i], again[i])
			}
		}
	})
}

func sameRequest(a, b request) bool {
	return a.at == b.at && a.oper == b.oper && a.Equal(b.Service)
}

// FuzzEndpoint checks that an accepted endpoint is restored unchanged from the journal, and that
// the response can be sent back.
func FuzzEndpoint(f *testing.F) {
	f.Add(`{"hostName":"31.31.31.1","inactiveReTries":2,"probeType":"ping","probeReq":"","probeResp":"","probeDuration":60,"probePort":0}`)
	f.Add(`{"hostName":"2001:db8::1","name":"n","probeType":"https","probePort":443,"probeReq":"x","probeStatuses":["200-299"],` +
		`"probeInterval":"1.5s","probeCert":"/c","probeKey":"/k"}`)
	f.Add(`{"HOSTNAME":"1.2.3.4","probeType":"dns","probePort":53,"probeReq":"a.b","probeResp":"::1","probeWait":"10ms"}`)
	f.Fuzz(func(t *testing.T, body string) {
		e, p := newCodec(false).decodeEndpoint([]byte(body), &rest.Warnings{})
		if p != nil {
			if p.Body.Code != 400 || p.Body.Message == "" {
				t.Fatalf("refused with %+v", p.Body)
			}
			return
		}
		data, err := e.MarshalRecord()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := lb.UnmarshalEndpointProbe(data); err != nil || !again.Probe.Equal(&e.Probe) || again.Key() != e.Key() || again.Addr != e.Addr {
			t.Fatalf("%s came back as %+v, %v", data, again, err)
		}
		answer, err := json.Marshal(newCodec(false).endpointAnswer(&report.EndpointHealth{EndpointProbe: e}))
		if err != nil {
			t.Fatal(err)
		}
		if again, p := newCodec(false).decodeEndpoint(answer, &rest.Warnings{}); p != nil || !again.Probe.Equal(&e.Probe) || again.Key() != e.Key() {
			t.Fatalf("%s was decoded as %+v, %v", answer, again, p)
		}
	})
}

package services

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
)

// longBody returns a request with n services of 10 endpoints.
func longBody(n int) []byte {
	var list []v1.LoadbalanceEntry
	for i := range n {
		e := v1.LoadbalanceEntry{ServiceArguments: v1.ServiceArguments{
			ExternalIP: fmt.Sprintf("20.0.%d.%d", i>>8, i&255), Port: 80, Protocol: "tcp", Name: fmt.Sprintf("service-%d", i),
		}}
		for j := range 10 {
			e.Endpoints = append(e.Endpoints, v1.Endpoint{EndpointIP: fmt.Sprintf("31.31.31.%d", 1+(i+j)%250), TargetPort: 8080 + j, Weight: new(1)})
		}
		list = append(list, e)
	}
	body, err := json.Marshal(v1.LoadbalanceRequest{LbAttr: list})
	if err != nil {
		panic(err)
	}
	return body
}

// TestLongList checks that a long list is decoded in parts, in order, and that errors have their
// position in the whole.
func TestLongList(t *testing.T) {
	t.Parallel()
	const n = 1000
	body := longBody(n)
	o := rest.OutlineOf(body, rest.PartSize)
	if len(o.Parts) < 3 {
		t.Fatalf("the body has %d parts, want at least 3", len(o.Parts))
	}
	c := newCodec(false)
	list, bulk, p := c.decodeServices(body)
	if p != nil || !bulk || len(list) != n {
		t.Fatalf("got %d services, several %t, %v, want %d services", len(list), bulk, p, n)
	}
	for i, r := range list {
		if r.Name != fmt.Sprintf("service-%d", i) || r.at != fmt.Sprintf("lbAttr[%d].", i) || len(r.Endpoints) != 10 {
			t.Fatalf("service %d is %+v, out of order or incomplete", i, r)
		}
	}
	for replaced, want := range map[[2]string]string{
		{`"20.0.3.7"`, `"x"`}:                 `lbAttr[775].serviceArguments.externalIP "x" is not an IP address`,
		{`"20.0.3.7"`, `"20.0.0.5"`}:          `lbAttr[5] and lbAttr[775]`,
		{`"20.0.3.7"`, `7`}:                   `is of the wrong type (line 1, column `,
		{`"name":"service-900"`, `"nom":"x"`}: `unknown property "nom"`,
		{`"name":"service-900"`, `"name"`}:    `the body is not JSON (line 1, column `,
	} {
		bad := strings.Replace(string(body), replaced[0], replaced[1], 1)
		if _, _, p := c.decodeServices([]byte(bad)); p == nil || !strings.Contains(p.Body.Message, want) {
			t.Errorf("%s replaced by %s: got %v, want an error with %q", replaced[0], replaced[1], p, want)
		}
	}
}

// BenchmarkDecode measures what a long request costs before the store sees it.
func BenchmarkDecode(b *testing.B) {
	body := longBody(10_000)
	c := newCodec(false)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, p := c.decodeServices(body); p != nil {
			b.Fatal(p)
		}
	}
}

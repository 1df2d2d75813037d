package apitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/access"
	"loxilb/internal/api/httpapi"
	"loxilb/internal/api/httpapi/transport"
	"loxilb/internal/event"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// Connections returns some connections of each kind.
func Connections() []report.Connection {
	ap := netip.MustParseAddrPort
	return []report.Connection{
		{
			Protocol: lb.TCP, Src: ap("100.100.100.1:40000"), Dst: ap("20.20.20.1:2020"),
			NewSrc: ap("100.100.100.1:40000"), NewDst: ap("31.31.31.1:5001"), Endpoint: ap("31.31.31.1:5001"), ConfiguredEndpoint: ap("31.31.31.1:5001"),
			Weight: 1, State: "est", Traffic: report.Traffic{Packets: 4, Bytes: 400}, Service: "web",
		},
		{
			Protocol: lb.TCP, Src: ap("31.31.31.1:5001"), Dst: ap("100.100.100.1:40000"), Reply: true,
			NewSrc: ap("20.20.20.1:2020"), NewDst: ap("100.100.100.1:40000"), Endpoint: ap("31.31.31.1:5001"), ConfiguredEndpoint: ap("31.31.31.1:5001"),
			Weight: 1, State: "est", Traffic: report.Traffic{Packets: 3, Bytes: 300}, Service: "web",
		},
		{
			Protocol: lb.UDP, Src: ap("[2001:db8::64]:5353"), Dst: ap("[2001:db8::1]:53"),
			NewSrc: ap("[2001:db8::64]:5353"), NewDst: ap("[2001:db8:1::1]:53"), Endpoint: ap("[2001:db8:1::1]:53"), ConfiguredEndpoint: ap("[2001:db8:1::1]:53"),
			Weight: 5, State: "udp-uni", Traffic: report.Traffic{Packets: 1, Bytes: 64}, Service: "[2001:db8::1]:53/udp",
		},
	}
}

// GetAs sends a GET request, and decodes the answer.
func GetAs[T any](b *Bench, path string) (out T) {
	b.T.Helper()
	w := b.Call("GET", httpapi.BaseURL+path, "")
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || w.Code != 200 || w.Header().Get("Content-Type") != "application/json" {
		b.T.Fatalf("GET %s: %d %v %s", path, w.Code, err, w.Body)
	}
	return out
}

// Normal returns JSON in a normal form.
func Normal(t *testing.T, text string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

// Object returns a service as an object of a list. n is the last byte of its VIP.
func Object(n int, rest string, endpoints ...string) string {
	for i, e := range endpoints {
		endpoints[i] = `{"endpointIP":"` + e + `","targetPort":80,"weight":1}`
	}
	return fmt.Sprintf(`{"kind":"lb","spec":{"serviceArguments":{"externalIP":"20.20.20.%d","port":80,"protocol":"tcp"%s},"endpoints":[%s]}}`, n, rest, strings.Join(endpoints, ","))
}

// DescribeChanges returns the changes of an answer as text.
func DescribeChanges(r v1.ApplyResult) string {
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

// Secured returns a Bench that requires a token for each request over TCP, and the tokens of a user
// of each role. Requests come from another machine.
func Secured(t *testing.T) (b *Bench, tokens map[string]string) {
	t.Helper()
	dir := t.TempDir()
	b = New(t, func(o *httpapi.Options) { o.RequireTokens, o.Audit = true, access.NewAudit(dir) })
	tokens = map[string]string{}
	for _, role := range []string{"view", "operate", "admin"} {
		r, _ := access.ParseRole(role)
		if _, err := b.API.Access.Add(t.Context(), role, Passphrase, r); err != nil {
			t.Fatal(err)
		}
	}
	b.Http = b.API.Handler(transport.ByNetwork)
	for _, u := range b.API.Access.List() {
		tokens[u.Name] = b.Login(u.Name, Passphrase)
	}
	return b, tokens
}

// ServeEvents serves over TCP: a stream of events needs a connection.
func ServeEvents(t *testing.T, hub *event.Hub) (*Bench, *httptest.Server) {
	b := New(t, func(o *httpapi.Options) { o.Events = hub })
	server := httptest.NewUnstartedServer(b.API.Handler(transport.BySocket))
	server.Config.RegisterOnShutdown(b.API.Observation.Streams.Close)
	server.Start()
	t.Cleanup(server.Close)
	return b, server
}

// Kube returns kubeService with the optional properties args, and with replaced texts.
func Kube(args string, replaced ...string) string {
	return strings.NewReplacer(append(replaced, "$ARGS", args)...).Replace(kubeService)
}

// KubeChanged reports whether kube-loxilb considers an answer a success.
func KubeChanged(w *httptest.ResponseRecorder) bool {
	return w.Code == http.StatusOK && strings.TrimSpace(w.Body.String()) == `{"result":"Success"}`
}

// Passphrase is the password of the users of Secured.
const Passphrase = "correct horse"

// kubeService is kube-loxilb's request for a port of a Kubernetes service, with all properties that
// it always sends. $ARGS stands for its optional properties.
const kubeService = `{"serviceArguments":{"externalIP":"123.123.123.1","privateIP":"","port":80,"protocol":"tcp","sel":0,"mode":0,"BGP":false,"Monitor":false,` +
	`"inactiveTimeOut":1800,"block":0,"managed":true,"probetype":"","probeport":0,"probereq":"","proberesp":"","name":"default_web:llb-inst0"$ARGS},` +
	`"secondaryIPs":[],"allowedSources":[],` +
	`"endpoints":[{"endpointIP":"10.1.0.1","targetPort":31000,"weight":1,"state":"","counter":""},{"endpointIP":"10.1.0.2","targetPort":31000,"weight":1,"state":"","counter":""}]}`

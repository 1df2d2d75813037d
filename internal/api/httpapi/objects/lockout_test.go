package objects_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"loxilb/internal/api/httpapi"
	"loxilb/internal/lb/policy"
	"loxilb/test/apitest"
)

// TestServiceCuts checks that a service at the address and port of a connection of this machine is
// refused with the connection's name, unless forced: alone, in a list, and in an exported file. A
// plan names the connection. Changes that affect no connection do not read the sockets.
func TestServiceCuts(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	b.Fake.Accepted = []policy.AcceptedConnection{{Remote: netip.MustParseAddrPort("203.0.113.9:5000"), Local: netip.MustParseAddrPort("10.0.0.1:11111"), Interface: "eth0"}}
	const cut = " would end the connection from 203.0.113.9:5000 to 10.0.0.1:11111: to do it nevertheless, use force=true"
	service := func(arguments string) string {
		return `{"serviceArguments":{` + arguments + `},"endpoints":[{"endpointIP":"10.1.0.1","targetPort":80,"weight":1}]}`
	}
	own := service(`"externalIP":"10.0.0.1","port":11111,"protocol":"tcp"`)
	list := `{"objects":[{"kind":"Loadbalancer","spec":` + own + `}]`
	for _, c := range []struct{ path, body, want string }{
		{"/config/loadbalancer", own, "409 service 10.0.0.1:11111/tcp" + cut},
		{"/config/loadbalancer", service(`"externalIP":"10.0.0.1","port":11000,"portMax":12000,"protocol":"tcp"`), "409 service 10.0.0.1:11000-12000/tcp" + cut},
		{"/config/loadbalancer", `{"lbAttr":[` + own + `]}`, "409 service 10.0.0.1:11111/tcp" + cut},
		{"/config/loadbalancer", service(`"externalIP":"0.0.0.0","port":11111,"protocol":"tcp","mode":5`), "409 service 0.0.0.0:11111/tcp" + cut},
		{"/config/loadbalancer", service(`"externalIP":"10.0.0.1","port":11112,"protocol":"tcp"`), "200 "},
		{"/config/loadbalancer", service(`"externalIP":"10.0.0.1","port":11111,"protocol":"udp"`), "200 "},
		{"/config/loadbalancer", service(`"externalIP":"10.0.0.1","port":11111,"protocol":"tcp","block":7`), "200 "},
		{"/config/apply", list + `}`, "409 service 10.0.0.1:11111/tcp" + cut},
		{"/config/apply", list + `,"dryRun":true}`, `200 "cuts":["the connection from 203.0.113.9:5000`},
		{"/config/apply", list + `,"confirm":60}`, "200 "},
		{"/config/confirm", `{}`, "200 "},
		{"/config/loadbalancer", service(`"externalIP":"10.0.0.1","port":11111,"protocol":"tcp","name":"n"`), "200 "}, // exists already
		{"/config/loadbalancer?force=true", service(`"externalIP":"10.0.0.1","port":11000,"portMax":12000,"protocol":"tcp"`), "200 "},
	} {
		code, text, _ := strings.Cut(c.want, " ")
		if w := b.Call("POST", httpapi.BaseURL+c.path, c.body, "Content-Type", "application/json"); fmt.Sprint(w.Code) != code || !strings.Contains(w.Body.String(), text) {
			t.Errorf("%s %s: %d %s, want %s", c.path, c.body, w.Code, w.Body, c.want)
		}
	}
}

// TestServiceUnknownCuts checks that services are created, and rules are not, where the machine's
// connections cannot be read.
func TestServiceUnknownCuts(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	b.Fake.SessionsErr = errors.New("permission denied")
	for _, c := range []struct {
		path, body string
		code       int
	}{
		{"/config/loadbalancer", `{"serviceArguments":{"externalIP":"10.0.0.1","port":80,"protocol":"tcp"},"endpoints":[{"endpointIP":"10.1.0.1","targetPort":80,"weight":1}]}`, 200},
		{"/config/firewall", `{"ruleArguments":{},"opts":{"drop":true}}`, 503},
	} {
		if w := b.Call("POST", httpapi.BaseURL+c.path, c.body, "Content-Type", "application/json"); w.Code != c.code {
			t.Errorf("%s: %d %s, want %d", c.path, w.Code, w.Body, c.code)
		}
	}
}

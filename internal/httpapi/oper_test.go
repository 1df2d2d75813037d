package httpapi

import (
	"strings"
	"testing"
)

// TestAttachDetach changes the endpoints of a service one step at a time.
func TestAttachDetach(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	request := func(args string, endpoints ...string) string {
		for i, e := range endpoints {
			ip, weight, _ := strings.Cut(e, "*")
			endpoints[i] = `{"endpointIP":"` + ip + `","targetPort":80,"weight":` + weight + `}`
		}
		return `{"serviceArguments":{"externalIP":"20.20.20.1","port":80,"protocol":"tcp"` + args + `},"endpoints":[` + strings.Join(endpoints, ",") + `]}`
	}
	const key = "20.20.20.1:80/tcp"
	for _, step := range []struct {
		body string
		code int
		want string // of the service, or of the message
	}{
		{request(`,"oper":2`, "10.0.0.1*1"), 404, "service " + key + " does not exist"},
		{request(`,"oper":1,"sel":2,"name":"web"`, "10.0.0.1*1"), 200, "priority endpoints=10.0.0.1:80 name=web"},
		{request(`,"oper":1`, "10.0.0.2*3", "10.0.0.3*1"), 200, "priority endpoints=10.0.0.1:80,10.0.0.2:80:3,10.0.0.3:80 name=web"},
		{request(`,"oper":1`, "10.0.0.2*3"), 409, "exists already with the same content"},
		{request(`,"oper":1,"sel":2,"managed":true`, "10.0.0.2*4"), 200, "priority endpoints=10.0.0.1:80,10.0.0.2:80:4,10.0.0.3:80 name=web"},
		{request(`,"oper":1,"name":"other"`, "10.0.0.4*4"), 400, `serviceArguments.name "other" is not what service ` + key + ` has, and oper 1 changes its endpoints only (allowed: web)`},
		{request(`,"oper":2,"inactiveTimeOut":5`, "10.0.0.1*4"), 400, `serviceArguments.inactiveTimeOut "5s" is not what`},
		{request(`,"oper":2`, "10.0.0.1*1", "10.0.0.9*1"), 404, `endpoints[1] "10.0.0.9:80" is no endpoint of service ` + key},
		{request(`,"oper":2`, "10.0.0.2*1"), 200, "priority endpoints=10.0.0.1:80,10.0.0.3:80 name=web"},
		{`{"lbAttr":[` + request(`,"oper":1`, "10.0.0.2*1") + `]}`, 200, "priority endpoints=10.0.0.1:80,10.0.0.3:80,10.0.0.2:80 name=web"},
		{request(`,"oper":2`, "10.0.0.3*1", "10.0.0.1*9", "10.0.0.2*9"), 200, ""},
		{request(`,"oper":2`, "10.0.0.1*1"), 404, "does not exist"},
	} {
		w := b.post(step.body)
		if w.Code != 200 {
			if e := problemOf(t, w); w.Code != step.code || !strings.Contains(e.Message, step.want) {
				t.Errorf("%s:\n%d %s, want %d %s", step.body, w.Code, e.Message, step.code, step.want)
			}
			continue
		}
		got := ""
		for s := range b.store.Services.All(b.store.Snapshot()) {
			got = strings.TrimPrefix(s.String(), key+" mode=default select=")
		}
		if step.code != 200 || got != step.want {
			t.Errorf("%s:\n%d %s, want %d %s", step.body, w.Code, got, step.code, step.want)
		}
	}
}

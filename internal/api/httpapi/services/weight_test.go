package services_test

import (
	"strings"
	"testing"

	"loxilb/internal/api/httpapi"
	"loxilb/internal/lb"
	"loxilb/test/apitest"
)

// TestSetWeight checks that a weight changes only in the named services, and that an invalid
// request changes nothing.
func TestSetWeight(t *testing.T) {
	t.Parallel()
	b := apitest.New(t, nil)
	const path = httpapi.BaseURL + "/config/endpointweight"
	for _, port := range []string{"80", "81", "82"} {
		name := map[string]string{"80": "a", "81": "b", "82": "b"}[port]
		b.MustPost(`{"serviceArguments":{"externalIP":"20.20.20.1","port":` + port + `,"protocol":"tcp","name":"` + name + `"},"endpoints":[
			{"endpointIP":"31.31.31.1","targetPort":80,"weight":1},{"endpointIP":"31.31.31.1","targetPort":81,"weight":1},{"endpointIP":"32.32.32.1","targetPort":80,"weight":1}]}`)
	}
	weights := func() (all []int) {
		for s := range b.Store.Services.All(b.Store.Snapshot()) {
			for _, e := range s.Endpoints {
				all = append(all, int(e.Weight))
			}
		}
		return all
	}
	want := func(body string, list ...int) {
		t.Helper()
		if w := b.Call("POST", path, body); w.Code != 200 {
			t.Fatalf("%s: got %d %s, want code 200", body, w.Code, w.Body)
		}
		got := weights()
		for i := range list {
			if got[i] != list[i] {
				t.Fatalf("%s: weights are %v, want %v", body, got, list)
			}
		}
	}
	want(`{"endpoint":"31.31.31.1:80","weight":5}`, 5, 1, 1, 5, 1, 1, 5, 1, 1)
	want(`{"endpoint":"31.31.31.1","weight":0,"servName":"b"}`, 5, 1, 1, 0, 0, 1, 0, 0, 1)
	want(`{"endpoint":"31.31.31.1","weight":0,"servName":"b"}`, 5, 1, 1, 0, 0, 1, 0, 0, 1)
	want(`{"endpoint":"32.32.32.1:80","weight":65535,"service":"20.20.20.1:82/tcp"}`, 5, 1, 1, 0, 0, 1, 0, 0, lb.MaxWeight)
	w := b.Call("POST", path, `{"endpoint":"31.31.31.1:80","weight":5,"service":"20.20.20.1:80/tcp"}`)
	if note := w.Header().Get("Warning"); !strings.Contains(note, "weight has no effect: the endpoints of 20.20.20.1:80/tcp take turns by rr") {
		t.Errorf("%d, warning %q", w.Code, note)
	}
	for body, field := range map[string]string{
		`{"endpoint":"me","weight":1}`:                                           "endpoint",
		`{"endpoint":"31.31.31.1:80"}`:                                           "weight",
		`{"endpoint":"31.31.31.1:80","weight":65536}`:                            "weight",
		`{"endpoint":"31.31.31.1:80","weight":-1}`:                               "weight",
		`{"endpoint":"31.31.31.1:80","weight":1,"service":"x"}`:                  "service",
		`{"endpoint":"31.31.31.1:80","weight":1,"service":"x","servName":"web"}`: "servName",
	} {
		if e := apitest.ProblemOf(t, b.Call("POST", path, body)); e.Code != 400 || e.Field != field {
			t.Errorf("%s: got %+v, want code 400 about %s", body, e, field)
		}
	}
	for _, body := range []string{
		`{"endpoint":"9.9.9.9","weight":1}`, `{"endpoint":"31.31.31.1","weight":1,"servName":"c"}`, `{"endpoint":"31.31.31.1","weight":1,"service":"20.20.20.1:83/tcp"}`,
	} {
		if w := b.Call("POST", path, body); w.Code != 404 {
			t.Errorf("%s: got %d %s, want code 404", body, w.Code, w.Body)
		}
	}
}

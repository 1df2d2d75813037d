package services_test

import (
	"fmt"
	"strings"
	"testing"

	"loxilb/internal/api/httpapi"
	"loxilb/internal/lb/report"
	"loxilb/test/apitest"
)

// TestObservedEndpointSteps checks that finding the states of a service's endpoints takes a few
// steps for each, and none for the contract's responses, which have no observed state.
func TestObservedEndpointSteps(t *testing.T) {
	t.Parallel()
	const n = 200
	endpoints, list := []string{}, []*report.EndpointHealth{}
	for i := range n {
		addr := fmt.Sprintf("31.31.31.%d", i+1)
		endpoints = append(endpoints, `{"endpointIP":"`+addr+`","targetPort":5001,"weight":1}`)
		list = append(list, health(report.HealthUp, addr))
	}
	body := `{"serviceArguments":{"externalIP":"20.20.20.1","port":2020,"protocol":"tcp","monitor":true},` +
		`"endpoints":[` + strings.Join(endpoints, ",") + `]}`
	for _, compat := range []bool{false, true} {
		b := apitest.New(t, func(o *httpapi.Options) { o.Compat = compat })
		b.MustPost(body)
		b.Fake.Health = list
		observed := b.API.NewObservedEndpoints()
		for _, h := range list {
			want := "up"
			if compat {
				want = ""
			}
			if got := observed.Answer(h).ObservedState; got != want {
				t.Fatalf("%s is %q, want %q", h.Addr, got, want)
			}
		}
		want := 2 * n
		if compat {
			want = 0
		}
		if observed.Steps != want {
			t.Errorf("compat %t: %d steps for %d endpoints, want %d", compat, observed.Steps, n, want)
		}
	}
}

package services

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
)

// maxRated is the maximum number of services whose rates are requested.
const maxRated = 20

// rated is a table of rates, and the length of their window.
type rated struct {
	*session.Table
	seconds float64
}

func newRated() *rated {
	return &rated{Table: session.NewTable("Of", "Active", "Connections/s", "Packets/s in", "Packets/s out", "Bits/s in", "Bits/s out", "Repeated SYNs/s", "Failed handshakes/s")}
}

func (t *rated) add(of string, active uint64, r *v1.Rates) {
	cells := []string{of, strconv.FormatUint(active, 10)}
	for _, v := range []float32{r.Connections, r.PacketsIn, r.PacketsOut, 8 * r.BytesIn, 8 * r.BytesOut, r.RepeatedSyns, r.FailedHandshakes} {
		decimals := 0
		if v > 0 && v < 10 {
			decimals = 1
		}
		cells = append(cells, strconv.FormatFloat(float64(v), 'f', decimals, 32))
	}
	t.Add(cells...)
}

// text returns the title and the table; nothing, if it is empty.
func (t *rated) text() string {
	if t.Waiting() == 0 {
		return ""
	}
	return fmt.Sprintf("Rates over the last %.0f s:\n%s", max(1, t.seconds), t.String())
}

// askRates requests the rates of a service and its endpoints. It returns nil if the server does not
// support that.
func askRates(ctx context.Context, o *session.Options, client *v1.Client, key string) (*v1.ServiceRates, float64, error) {
	list, err := session.DecodeAs[v1.ServiceRatesList](o.Answer(client.GetServiceRates(ctx, &v1.GetServiceRatesParams{Service: key, Endpoints: true, Counters: true})))
	if err != nil || len(list.Services) == 0 {
		return nil, 0, session.UnlessRefused(err)
	}
	return &list.Services[0], list.Seconds, nil
}

// serviceRates returns the rates of a service and its endpoints.
func serviceRates(ctx context.Context, o *session.Options, client *v1.Client, key string) (string, error) {
	s, seconds, err := askRates(ctx, o, client, key)
	if err != nil || s == nil {
		return "", err
	}
	t := newRated()
	t.seconds = seconds
	t.add("service", s.Active, &s.Rates)
	for i := range s.Endpoints {
		t.add(s.Endpoints[i].Endpoint, s.Endpoints[i].Active, &s.Endpoints[i].Rates)
	}
	return connectionsSoFar(s) + t.text(), nil
}

// connectionsSoFar returns a table of the outcomes of a service's clients. Older servers do not
// return it.
func connectionsSoFar(s *v1.ServiceRates) string {
	if s.Counters == nil {
		return ""
	}
	t := session.NewTable("Of", "Attempts", "Made", "Active", "Inactive", "Refused", "Failed", "Unanswered")
	add := func(of string, c *v1.Counters) {
		if c == nil {
			return
		}
		cells := []string{of}
		for _, n := range []uint64{c.Attempts, c.Connections, c.Active, c.Inactive, c.Refused, c.FailedHandshakes, c.Unanswered} {
			cells = append(cells, strconv.FormatUint(n, 10))
		}
		t.Add(cells...)
	}
	add("service", s.Counters)
	for i := range s.Endpoints {
		add(s.Endpoints[i].Endpoint, s.Endpoints[i].Counters)
	}
	text := "Connections so far:\n" + t.String()
	if reasons := session.Reasons(s.Counters.RefusedBy); reasons != "" {
		text += "Refused so far:    " + reasons + "\n"
	}
	return text
}

// endpointRates returns the rates of an endpoint from each service that considers it.
func endpointRates(ctx context.Context, o *session.Options, e *v1.EndpointProbe) (string, error) {
	client, err := o.Client()
	if err != nil {
		return "", err
	}
	t := newRated()
	for _, key := range e.Services[:min(len(e.Services), maxRated)] {
		s, seconds, err := askRates(ctx, o, client, key)
		if err != nil {
			return "", err
		}
		if s == nil {
			continue
		}
		t.seconds = seconds
		for i := range s.Endpoints {
			r := &s.Endpoints[i]
			if at, err := netip.ParseAddrPort(r.Endpoint); err == nil && at.Addr().String() == e.HostName {
				t.add(key+" > "+r.Endpoint, r.Active, &r.Rates)
			}
		}
	}
	return t.text(), nil
}

package services

import (
	"strings"
	"testing"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
)

// TestProblemOfEndpoint checks that an endpoint that is down is shown with the reason and the time,
// and with the last result if that differs.
func TestProblemOfEndpoint(t *testing.T) {
	t.Parallel()
	e := &v1.LoadbalanceEntry{Status: &v1.Status{Key: "20.20.20.1:80/tcp"}, Endpoints: []v1.Endpoint{{EndpointIP: "10.0.0.1", State: "inactive"}}}
	at := time.Date(2020, 1, 2, 3, 4, 5, 0, time.Local)
	down := []v1.EndpointProbe{{
		Name: "10.0.0.1_tcp_80", HostName: "10.0.0.1", ProbePort: 80, CurrState: "nok", ObservedState: "down", Services: []string{"20.20.20.1:80/tcp"},
		Since: at.Add(-time.Hour), Checked: at.Add(time.Second), Evidence: "accepts connections, 1 of 2",
		History: []v1.EndpointChange{{Time: at.Add(-time.Minute), Evidence: "before"}, {Time: at, Evidence: "connection refused, 3 of 3"}},
	}}
	twice := down[0]
	twice.Name = "10.0.0.1_none_80"
	if got := problemsOf(e, nil, append(down, twice)); got != "Problems:\n"+session.Clock(at)+"  endpoint 10.0.0.1:80 is down: connection refused, 3 of 3; last check "+
		session.Clock(at.Add(time.Second))+": accepts connections, 1 of 2\n" {
		t.Errorf("got %q, want the endpoint's problem with its time, and the last check", got)
	}
	down[0].Evidence = "connection refused, 1 of 3"
	if got := problemsOf(e, nil, down); strings.Contains(got, "last check") {
		t.Errorf("the same result is shown twice: %q", got)
	}
}

// TestNames checks that health events name complete services.
func TestNames(t *testing.T) {
	t.Parallel()
	const text = "endpoint 10.0.0.1:80 is down: refused (10.0.0.1_tcp_80, of 20.20.20.1:80/tcp, [2001:db8::1]:80/tcp and 3 more)"
	for key, want := range map[string]bool{"20.20.20.1:80/tcp": true, "[2001:db8::1]:80/tcp": true, "0.20.20.1:80/tcp": false, "10.0.0.1:80": true, "20.20.20.1:8/tcp": false} {
		if names(text, key) != want {
			t.Errorf("%s: want %t", key, want)
		}
	}
}

// TestWeightCell checks that the weight is followed by the level of a backup, and by the current
// share during a slow start.
func TestWeightCell(t *testing.T) {
	t.Parallel()
	for want, e := range map[string]v1.Endpoint{
		"":            {},
		"10":          {Weight: new(10)},
		"10@1":        {Weight: new(10), Backup: 1},
		"10 (30%)":    {Weight: new(10), Share: 30},
		"10@2 (100%)": {Weight: new(10), Backup: 2, Share: 100},
	} {
		if got := weightCell(&e); got != want {
			t.Errorf("the weight of %+v is shown as %q, want %q", e, got, want)
		}
	}
}

package report

import (
	"net/netip"
	"testing"

	"loxilb/internal/lb"
)

// TestHealthCount checks that an endpoint that is down by its probe and by clients' handshakes
// counts once, as does one that is up again.
func TestHealthCount(t *testing.T) {
	t.Parallel()
	row := func(addr string, p lb.ProbeType, s HealthState) *EndpointHealth {
		e := &EndpointHealth{State: s}
		e.Addr, e.Probe.Port, e.Probe.Type = netip.MustParseAddr(addr), 80, p
		return e
	}
	var c HealthCount
	reported := row("10.0.0.4", lb.ProbeNone, HealthUp)
	reported.Object = true
	for _, e := range []*EndpointHealth{
		row("10.0.0.1", lb.ProbeNone, HealthDown), row("10.0.0.1", lb.ProbeTCP, HealthDown), row("10.0.0.2", lb.ProbeNone, HealthUp), row("10.0.0.2", lb.ProbeTCP, HealthUp),
		row("10.0.0.3", lb.ProbeTCP, HealthDown), reported, row("10.0.0.5", lb.ProbeTCP, HealthUnknown),
	} {
		c.Add(e)
	}
	if c.Up != 2 || c.Down != 2 || c.Unknown != 1 {
		t.Errorf("got %+v, want c.Up == 2, c.Down == 2, c.Unknown == 1", c)
	}
}

package lb

import (
	"net/netip"
	"testing"
)

// TestHealthCount checks that an endpoint that is down by its probe and by clients' handshakes
// counts once, as does one that is up again.
func TestHealthCount(t *testing.T) {
	t.Parallel()
	row := func(addr string, p ProbeType, s HealthState) *EndpointHealth {
		e := &EndpointHealth{State: s}
		e.Addr, e.Probe.Port, e.Probe.Type = netip.MustParseAddr(addr), 80, p
		return e
	}
	var c HealthCount
	said := row("10.0.0.4", ProbeNone, HealthUp)
	said.Object = true
	for _, e := range []*EndpointHealth{
		row("10.0.0.1", ProbeNone, HealthDown), row("10.0.0.1", ProbeTCP, HealthDown), row("10.0.0.2", ProbeNone, HealthUp), row("10.0.0.2", ProbeTCP, HealthUp),
		row("10.0.0.3", ProbeTCP, HealthDown), said, row("10.0.0.5", ProbeTCP, HealthUnknown),
	} {
		c.Add(e)
	}
	if c.Up != 2 || c.Down != 2 || c.Unknown != 1 {
		t.Errorf("%+v", c)
	}
}

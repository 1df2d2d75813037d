package lb

import "net/netip"

// HealthCount counts endpoints by the results of probes and of clients' handshakes. An endpoint
// that several sources call down counts once; one that was taken out for its handshakes and is not
// probed does not count as up.
type HealthCount struct {
	Up, Down, Unknown int
	down              map[netip.AddrPort]struct{}
}

// Add counts an endpoint.
func (c *HealthCount) Add(e *EndpointHealth) {
	switch e.State {
	case HealthUp:
		if e.Probe.Type != ProbeNone || e.Object {
			c.Up++
		}
	case HealthDown:
		if c.down == nil {
			c.down = map[netip.AddrPort]struct{}{}
		}
		c.down[netip.AddrPortFrom(e.Addr, e.Probe.Port)] = struct{}{}
		c.Down = len(c.down)
	default:
		c.Unknown++
	}
}

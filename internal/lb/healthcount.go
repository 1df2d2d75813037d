package lb

import "net/netip"

// HealthCount counts endpoints by what probes, and handshakes of clients, say of them. One that
// several call down is down once; one that was out for handshakes, and is not probed, is none that
// is up.
type HealthCount struct {
	Up, Down, Unknown int
	down              map[netip.AddrPort]struct{}
}

// Add counts what one of them says.
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

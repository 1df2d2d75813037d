package report

import (
	"net/netip"
	"time"

	"loxilb/internal/lb"
)

// HealthState is the result of an endpoint's probes.
type HealthState uint8

// The states.
const (
	HealthUnknown HealthState = iota // no result yet
	HealthUp
	HealthDown
)

func (s HealthState) String() string {
	return [...]string{HealthUnknown: "unknown", HealthUp: "up", HealthDown: "down"}[s]
}

// Verdict is the health of an endpoint of a service, by source.
type Verdict struct {
	Probe   HealthState // reported by its probe; HealthUnknown: it is not probed, or not yet
	Agent   bool        // reported as down by a user's agent
	Ejected bool        // ejected by outlier detection
	Failing bool        // all recent handshakes of clients failed
	Refused bool        // a policy of IPsec refuses all packets to it, or all its answers
	NoRoute bool        // this machine has no route to it: packets to it are dropped
}

// Down reports whether any source reports the endpoint as down.
func (v Verdict) Down() bool {
	return v.Probe == HealthDown || v.Agent || v.Ejected || v.Failing || v.Refused || v.NoRoute
}

// HealthChange is one change of a state.
type HealthChange struct {
	At       time.Time
	From, To HealthState
	Evidence string
}

// EndpointHealth is the health of a probed address.
type EndpointHealth struct {
	lb.EndpointProbe          // the probe, with all defaults filled in; its name is unique
	Object           bool     // it is an object that a user has created
	Services         []lb.Key // services that consider it, in order
	State            HealthState
	AgentDown        bool // an agent reports it down
	Since            time.Time
	Checked          time.Time // when the last probe ended
	Evidence         string    // the last observation
	History          []HealthChange

	MinDelay, AvgDelay, MaxDelay time.Duration // of probes that succeeded
	Failures, Successes          int           // consecutive ones so far
	Changes                      uint64        // changes of the state since probing began
	Downs                        uint64        // how often it became down since probing began
	Downtime                     time.Duration // total time of being down
	Failed                       uint64        // total of failed probes
}

// HealthCount counts endpoints by the results of probes and of clients' handshakes. An endpoint
// that several sources report as down counts once; an ejected one without a probe does not count as
// up.
type HealthCount struct {
	Up, Down, Unknown int
	down              map[netip.AddrPort]struct{}
}

// Add counts an endpoint.
func (c *HealthCount) Add(e *EndpointHealth) {
	switch e.State {
	case HealthUp:
		if e.Probe.Type != lb.ProbeNone || e.Object {
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

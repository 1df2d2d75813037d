package lb

import "time"

// HealthState is what probes have found out about an endpoint.
type HealthState uint8

// The states.
const (
	HealthUnknown HealthState = iota // nothing yet
	HealthUp
	HealthDown
)

func (s HealthState) String() string {
	return [...]string{HealthUnknown: "unknown", HealthUp: "up", HealthDown: "down"}[s]
}

// Verdict is what is known about the health of an endpoint of a service, by source.
type Verdict struct {
	Probe   HealthState // what its probe reports; HealthUnknown: it is not probed, or not yet
	Agent   bool        // an agent of the user's has taken it out
	Ejected bool        // outlier detection has taken it out
	Failing bool        // all recent handshakes of clients failed
	Refused bool        // a policy of IPsec refuses all packets to it, or all its answers
	NoRoute bool        // this machine has no route to it: packets to it are dropped
}

// Down reports whether any source says that the endpoint is down.
func (v Verdict) Down() bool {
	return v.Probe == HealthDown || v.Agent || v.Ejected || v.Failing || v.Refused || v.NoRoute
}

// HealthChange is one change of a state.
type HealthChange struct {
	At       time.Time
	From, To HealthState
	Evidence string
}

// EndpointHealth is what is known of an address that is probed.
type EndpointHealth struct {
	EndpointProbe       // what is asked; all is written out, and no other has its name
	Object        bool  // users have made an object of it
	Services      []Key // that heed it, in order
	State         HealthState
	Red           bool // an agent of the user's has taken it out
	Since         time.Time
	Checked       time.Time // when the last probe ended
	Evidence      string    // what was seen last
	History       []HealthChange

	MinDelay, AvgDelay, MaxDelay time.Duration // of probes that succeeded
	Failures, Successes          int           // in a row
	Changes                      uint64        // of the state, since it is probed
	Downs                        uint64        // how often it has become down since it is probed
	Downtime                     time.Duration // for how long it was down in all
	Failed                       uint64        // probes that have failed in all
}

// Package servicestate computes the states of endpoints and services. It is the single source of
// these states for the API, metrics, the command line, the page, explain, doctor, events and logs.
package servicestate

import "loxilb/internal/lb/report"

// State is the state of an endpoint or of a service.
type State string

// The states of endpoints. A service has one of these states, or Degraded, Pending or Failed.
const (
	// Up: a probe or an agent reports it up.
	Up State = "up"
	// Unprobed: not checked yet, and without known faults. It takes connections.
	Unprobed State = "unprobed"
	// Standby: a backup that is not needed now.
	Standby State = "standby"
	// Draining: it takes no new connections, because of a drain or weight 0, but still has open
	// ones.
	Draining State = "draining"
	// Drained: like Draining, but without open connections.
	Drained State = "drained"
	// Panic: reported down, but it takes new connections, because too few others are up.
	Panic State = "panic"
	// Down: a probe, an agent, the handshakes of clients or an IPsec policy show that it does
	// not serve, or there is no route to it.
	Down State = "down"
)

// The states that only services have.
const (
	// Degraded: it serves, but some of its endpoints are down.
	Degraded State = "degraded"
	// Pending: the desired version is not applied yet.
	Pending State = "pending"
	// Failed: the desired version cannot be applied.
	Failed State = "failed"
)

// Endpoint is the input for the state of an endpoint of a service.
type Endpoint struct {
	report.Verdict
	Weight    uint16
	Drained   bool   // there is a drain of it
	Backup    bool   // it takes connections only while too few others do
	Available bool   // the data path sends new connections to it
	Open      uint64 // number of open connections
}

// State returns the state of the endpoint. A drain takes precedence over faults: a drained endpoint
// is expected to go down.
func (e Endpoint) State() State {
	switch {
	case (e.Drained || e.Weight == 0) && e.Open > 0:
		return Draining
	case e.Drained || e.Weight == 0:
		return Drained
	case e.Failing, e.Refused, e.NoRoute, e.Down() && !e.Available:
		return Down
	case e.Down():
		return Panic
	case e.Backup && !e.Available:
		return Standby
	case e.Probe == report.HealthUp:
		return Up
	}
	return Unprobed
}

// serves reports whether new connections go to the endpoint and no fault is known.
func (e Endpoint) serves() bool {
	s := e.State()
	return e.Available && (s == Up || s == Unprobed)
}

// Sync reports whether the data path has the desired version of a service.
type Sync uint8

// The values of Sync.
const (
	SyncApplied Sync = iota // it has that version
	SyncPending             // it has not tried that version yet
	SyncFailed              // it could not apply that version
)

// Service is the state of a service and of its endpoints.
type Service struct {
	State     State
	Endpoints []State // in the order of the service
	Serving   int     // endpoints that take new connections and are not known to be down
	Panicking int     // endpoints in state Panic
	Down      int     // endpoints in state Down or Panic
	Drained   int     // endpoints in state Draining or Drained
	Receiving int     // endpoints that get new connections, in any state
}

// Up reports whether the service probably serves clients.
func (s *Service) Up() bool { return s.Serving > 0 }

// Of computes the state of a service from its endpoints.
func Of(endpoints []Endpoint, sync Sync) Service {
	out := Service{Endpoints: make([]State, len(endpoints))}
	count := map[State]int{}
	for i, e := range endpoints {
		state := e.State()
		out.Endpoints[i] = state
		count[state]++
		if e.serves() {
			out.Serving++
		}
		if e.Available {
			out.Receiving++
		}
	}
	out.Panicking, out.Down, out.Drained = count[Panic], count[Down]+count[Panic], count[Draining]+count[Drained]
	out.State = out.overall(sync, count)
	return out
}

func (s *Service) overall(sync Sync, count map[State]int) State {
	switch {
	case sync == SyncFailed:
		return Failed
	case sync == SyncPending:
		return Pending
	case s.Serving > 0 && s.Down > 0:
		return Degraded
	case s.Serving > 0 && count[Up] == 0:
		return Unprobed
	case s.Serving > 0:
		return Up
	case s.Panicking > 0:
		return Panic
	case s.Down > 0 || s.Drained == 0:
		return Down
	case count[Draining] > 0:
		return Draining
	}
	return Drained
}

// ServiceStates returns the states of services, the worst first.
func ServiceStates() []State {
	return []State{Failed, Down, Panic, Degraded, Draining, Drained, Pending, Unprobed, Up}
}

// EndpointStates returns the states of endpoints, the worst first.
func EndpointStates() []State {
	return []State{Down, Panic, Draining, Drained, Standby, Unprobed, Up}
}

// TroubleStates returns the states of services that need attention: some clients are not served, or
// will not be after the next failure.
func TroubleStates() []State { return []State{Failed, Down, Panic, Degraded, Draining, Drained} }

package compat

import (
	v1 "loxilb/api/v1"
	"loxilb/internal/control/servicestate"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// Results of requests for existing objects: clients look for these words.
const (
	ServiceExists = "lbrule-exists error"
	RuleExists    = "fwrule-exists error"
)

// EndpointState returns the existing loxilb's word for the health of a service's endpoint, drained
// or not.
func EndpointState(s *lb.Service, e *lb.Endpoint, known *servicestate.Endpoint) string {
	switch {
	case known.Down():
		return "inactive"
	case s.IsProbed(*e):
		return "active" // also before the first answer: it takes connections
	}
	return ""
}

// HostState returns the existing loxilb's word for the health of a probed address.
func HostState(h *report.EndpointHealth) string {
	switch {
	case h.AgentDown:
		return "red"
	case h.State == report.HealthUp:
		return "ok"
	case h.State == report.HealthDown:
		return "nok"
	}
	return "unknown"
}

// HideNative removes properties that the existing loxilb's answers lack from a service.
func HideNative(e *v1.LoadbalanceEntry) {
	e.ObservedState, e.Refused = "", 0
	for i := range e.Endpoints {
		p := &e.Endpoints[i]
		p.ObservedState, p.ActiveConnections, p.InactiveConnections, p.Refused, p.Source = "", 0, 0, 0, ""
	}
}

package compat

import (
	"fmt"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/lb"
)

// maxIdle is the existing loxilb's longest idle timeout, in seconds.
const maxIdle = 86400

// maxProbeSeconds is the longest interval between probes, in the unit of the API.
const maxProbeSeconds = v1.Seconds(lb.MaxProbeInterval / time.Second)

// NormalizeArguments replaces meaningless arguments by their defaults, as the existing loxilb does.
// With compat, it replaces more of them.
func NormalizeArguments(compat bool, at string, a *v1.ServiceArguments, notes *rest.Warnings) {
	if a.PortMax > 0 && a.PortMax < a.Port {
		notes.Add("%sserviceArguments.portMax %d is below port %d: the service has the one port", at, a.PortMax, a.Port)
		a.PortMax = 0
	}
	if compat && a.InactiveTimeOut > maxIdle {
		notes.Add("%sserviceArguments.inactiveTimeOut %d is above %d seconds: it is the default of the protocol", at, a.InactiveTimeOut, maxIdle)
		a.InactiveTimeOut = 0
	}
	if compat && a.ProbeRetries > lb.MaxProbeCount {
		notes.Add("%sserviceArguments.probeRetries %d is above %d: it is %d", at, a.ProbeRetries, lb.MaxProbeCount, lb.MaxProbeCount)
		a.ProbeRetries = lb.MaxProbeCount
	}
	if compat && a.ProbeTimeout > maxProbeSeconds {
		notes.Add("%sserviceArguments.probeTimeout %d is above %d seconds: it is %d", at, a.ProbeTimeout, maxProbeSeconds, maxProbeSeconds)
		a.ProbeTimeout = maxProbeSeconds
	}
}

// NormalizeProbe replaces numbers of POST config/endpoint that are too high, with compat.
func NormalizeProbe(compat bool, e *v1.EndpointProbe, notes *rest.Warnings) {
	if compat && e.InactiveReTries > lb.MaxProbeCount {
		notes.Add("inactiveReTries %d is above %d: it is %d", e.InactiveReTries, lb.MaxProbeCount, lb.MaxProbeCount)
		e.InactiveReTries = lb.MaxProbeCount
	}
	if compat && e.ProbeDuration > maxProbeSeconds {
		notes.Add("probeDuration %d is above %d seconds: it is %d", e.ProbeDuration, maxProbeSeconds, maxProbeSeconds)
		e.ProbeDuration = maxProbeSeconds
	}
}

// unavailable is an argument of the existing loxilb that this build lacks.
type unavailable struct {
	Name    string
	instead string
	allowed string
	at      v1.Property[v1.LoadbalanceEntry]
}

// noHosts is the remedy for services selected by the header Host.
const noHosts = "loxilb does not read HTTP; let HAProxy or Envoy at the endpoints choose by host"

// Unavailable returns all unsupported arguments.
type Unavailable []unavailable

// NewUnavailable finds them among the properties of a service.
func NewUnavailable(entry v1.Properties[v1.LoadbalanceEntry]) Unavailable {
	list := []unavailable{
		{Name: "security", instead: "loxilb does not terminate TLS; let the endpoints do it", allowed: "0"},
		{Name: "snat", instead: "a firewall rule with doSnat translates sources", allowed: "false"},
		{Name: "host", instead: noHosts, allowed: "none"},
	}
	for i := range list {
		list[i].at = entry.Of("serviceArguments." + list[i].Name)
	}
	return list
}

// Refuse refuses a service with an unsupported argument. Ignoring it would be worse: the service
// would work differently than requested.
func (list Unavailable) Refuse(at string, e *v1.LoadbalanceEntry) *rest.Problem {
	for i := range list {
		u := &list[i]
		if !u.at.Given(e) {
			continue
		}
		value, _ := u.at.Get(e)
		return rest.Unsupported(at+"serviceArguments."+u.Name, fmt.Sprint(value), u.instead, u.allowed)
	}
	return nil
}

// RefuseHost refuses the key of a service that has a host.
func RefuseHost(field, host string) *rest.Problem {
	if host == "" || host == "any" {
		return nil
	}
	return rest.Unsupported(field, host, noHosts, "any")
}

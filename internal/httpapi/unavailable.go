package httpapi

import (
	"fmt"
	"slices"

	v1 "loxilb/api/v1"
)

// unavailable is one of the arguments that the contract has and this version does not do.
type unavailable struct {
	name     string
	allowed  string
	idle     []any // values beside the type's zero that ask for nothing: the contract's defaults
	protocol bool  // the service's protocol asks for nothing, too
	at       v1.Property[v1.LoadbalanceEntry]
}

func unavailableProperties(entry v1.Properties[v1.LoadbalanceEntry]) []unavailable {
	list := []unavailable{
		{name: "bgp", allowed: "false"},
		{name: "monitor", allowed: "false"},
		{name: "probetype", allowed: "none", idle: []any{"none"}, protocol: true},
		{name: "probeport", allowed: "0"},
		{name: "probereq", allowed: "none"},
		{name: "proberesp", allowed: "none"},
		{name: "probeTimeout", allowed: "0", idle: []any{60}},
		{name: "probeRetries", allowed: "0", idle: []any{2}},
		{name: "security", allowed: "0"},
		{name: "snat", allowed: "false"},
		{name: "host", allowed: "none"},
		{name: "proxyprotocolv2", allowed: "false"},
	}
	for i := range list {
		list[i].at = entry.Of("serviceArguments." + list[i].name)
	}
	return list
}

// refuseUnavailable refuses what the contract has and this version does not do. Never ignored in silence: a service that works
// in another way than it was asked to is worse than one that is refused.
func (c *codec) refuseUnavailable(at string, e *v1.LoadbalanceEntry) *problem {
	for i := range c.unavailable {
		u := &c.unavailable[i]
		if !u.at.Given(e) {
			continue
		}
		value, _ := u.at.Get(e)
		if slices.Contains(u.idle, value) || u.protocol && value == e.ServiceArguments.Protocol {
			continue
		}
		return notAvailable(at+"serviceArguments."+u.name, fmt.Sprint(value), u.allowed)
	}
	return nil
}

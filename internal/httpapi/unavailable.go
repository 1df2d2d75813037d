package httpapi

import (
	"fmt"
	"slices"

	v1 "loxilb/api/v1"
)

// unavailableProperty is one of the arguments that the contract has and this version does not do.
type unavailableProperty struct {
	name    string
	allowed string
	idle    []any // values beside the type's zero that ask for nothing: the contract's defaults
}

func unavailableProperties(a *v1.ServiceArguments) []unavailableProperty {
	return []unavailableProperty{
		{name: "bgp", allowed: "false"},
		{name: "monitor", allowed: "false"},
		{name: "probetype", allowed: "none", idle: []any{"none", a.Protocol}},
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
}

// unavailable refuses what the contract has and this version does not do. Never ignored in silence: a service that works
// in another way than it was asked to is worse than one that is refused.
func (c *codec) unavailable(at string, e *v1.LoadbalanceEntry) *problem {
	for _, u := range unavailableProperties(&e.ServiceArguments) {
		name := "serviceArguments." + u.name
		if value, given := c.entry.Get(e, name); given && !slices.Contains(u.idle, value) {
			return notAvailable(at+name, fmt.Sprint(value), u.allowed)
		}
	}
	return nil
}

package httpapi

import (
	"fmt"

	v1 "loxilb/api/v1"
)

// unavailable is one of the arguments that the contract has and this version does not do.
type unavailable struct {
	name    string
	allowed string
	at      v1.Property[v1.LoadbalanceEntry]
}

func unavailableProperties(entry v1.Properties[v1.LoadbalanceEntry]) []unavailable {
	list := []unavailable{
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
		return notAvailable(at+"serviceArguments."+u.name, fmt.Sprint(value), u.allowed)
	}
	return nil
}

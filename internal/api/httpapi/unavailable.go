package httpapi

import (
	"fmt"

	v1 "loxilb/api/v1"

	"loxilb/internal/api/httpapi/rest"
)

// unavailable is one of the arguments that the contract has and this build does not do.
type unavailable struct {
	name    string
	instead string
	allowed string
	at      v1.Property[v1.LoadbalanceEntry]
}

// noHosts is what to do about services that are chosen by the header Host.
const noHosts = "HTTP is not read here, so let HAProxy or Envoy at the endpoints choose by host"

func unavailableProperties(entry v1.Properties[v1.LoadbalanceEntry]) []unavailable {
	list := []unavailable{
		{name: "security", instead: "TLS is not ended here, so let the endpoints end it", allowed: "0"},
		{name: "snat", instead: "a firewall rule with doSnat translates sources", allowed: "false"},
		{name: "host", instead: noHosts, allowed: "none"},
		{name: "proxyprotocolv2", instead: "modes default and dsr show endpoints the client's address", allowed: "false"},
	}
	for i := range list {
		list[i].at = entry.Of("serviceArguments." + list[i].name)
	}
	return list
}

// refuseUnavailable refuses what the contract has and this build does not do. Never ignored in
// silence: a service that works in another way than it was asked to is worse than one that is
// refused.
func (c *codec) refuseUnavailable(at string, e *v1.LoadbalanceEntry) *rest.Problem {
	for i := range c.unavailable {
		u := &c.unavailable[i]
		if !u.at.Given(e) {
			continue
		}
		value, _ := u.at.Get(e)
		return rest.NotBuilt(at+"serviceArguments."+u.name, fmt.Sprint(value), u.instead, u.allowed)
	}
	return nil
}

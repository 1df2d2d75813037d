package httpapi

import (
	"strconv"

	v1 "loxilb/api/v1"
)

// unavailable refuses what the contract has and this version does not do. A value that is the contract's default
// asks for nothing, and passes. Never ignored in silence: a service that works in another way than it was asked to
// is worse than one that is refused.
func unavailable(at string, e *v1.LoadbalanceEntry) *problem {
	a := &e.ServiceArguments
	args := at + "serviceArguments."
	for _, f := range [...]struct {
		name    string
		given   bool
		value   string
		allowed string
	}{
		{"bgp", a.Bgp, "true", "false"},
		{"monitor", a.Monitor, "true", "false"},
		{"probetype", a.Probetype != "" && a.Probetype != a.Protocol && a.Probetype != "none", a.Probetype, "none"},
		{"probeport", a.Probeport != 0, strconv.Itoa(a.Probeport), "0"},
		{"probereq", a.Probereq != "", a.Probereq, "none"},
		{"proberesp", a.Proberesp != "", a.Proberesp, "none"},
		{"probeTimeout", a.ProbeTimeout != 0 && a.ProbeTimeout != 60, strconv.Itoa(a.ProbeTimeout), "0"},
		{"probeRetries", a.ProbeRetries != 0 && a.ProbeRetries != 2, strconv.Itoa(a.ProbeRetries), "0"},
		{"security", a.Security != 0, strconv.Itoa(a.Security), "0"},
		{"snat", a.Snat, "true", "false"},
		{"host", a.Host != "", a.Host, "none"},
		{"proxyprotocolv2", a.Proxyprotocolv2, "true", "false"},
	} {
		if f.given {
			return notAvailable(args+f.name, f.value, f.allowed)
		}
	}
	return nil
}

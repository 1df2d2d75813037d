package kinds

import (
	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
)

// InstanceName is the name of the kind in messages and journals.
const InstanceName = "instance"

// Instance registers the roles of this node for the services of instances.
func Instance() *Kind[lb.Instance, v1.InstanceState] {
	stored := asJSON(func(i lb.Instance) string { return i.Key() }, func(i lb.Instance) error { return i.Validate() })
	stored.Max = 1024 // each change visits all VIPs
	stored.Plural = "instances"
	stored.Urgent = true // the peer's role changes at the same time
	return &Kind[lb.Instance, v1.InstanceState]{
		Words:  Words{Name: InstanceName, Command: "hastate", Aliases: []string{"ha", "HAstate"}, List: "Attr"},
		Stored: stored,
	}
}

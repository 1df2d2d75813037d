package desired

import (
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
)

// Instances is the table of roles.
type Instances struct {
	store.Table[lb.Instance]
	origin string // where this process is
	node   *Maintenance
}

// Put stores the role of an instance, as set at this place.
func (i *Instances) Put(tx *store.Tx, one lb.Instance) error {
	one.Origin = i.origin
	return i.Table.Put(tx, one)
}

// OfThisNode returns the instances of this node by key. A drained node is master of none: it keeps
// its VIPs while it drains, until another node is master or traffic has ceased.
func (i *Instances) OfThisNode(v store.View) map[string]lb.Instance {
	here := i.Assigned(v)
	if i.node.OfThisNode(v).Stage() == lb.Drained {
		for key, one := range here {
			if one.Role == lb.RoleMaster {
				one.Role = lb.RoleBackup
				here[key] = one
			}
		}
	}
	return here
}

// Assigned returns the instances by key, with the roles that were set at this place.
func (i *Instances) Assigned(v store.View) map[string]lb.Instance {
	set := make(map[string]lb.Instance)
	for one := range i.All(v) {
		one = one.AtOrigin(i.origin)
		set[one.Key()] = one
	}
	return set
}

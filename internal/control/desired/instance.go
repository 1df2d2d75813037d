package desired

import (
	"loxilb/internal/control/store"
	"loxilb/internal/lb"
)

// Instances is the table of instances with this node's roles.
type Instances struct {
	store.Table[lb.Instance]
	origin string // where this process runs, see WithOrigin
	node   *Maintenance
}

// Put stores the role of an instance, as assigned where this process runs.
func (i *Instances) Put(tx *store.Tx, one lb.Instance) error {
	one.Origin = i.origin
	return i.Table.Put(tx, one)
}

// OfThisNode returns the instances by key, with the effective roles of this node. A drained node is
// master of none. While it drains, it remains master until another node is, or traffic has ceased.
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

// Assigned returns the instances by key, with the assigned roles. A master that was assigned
// elsewhere is a backup (lb.Instance.AtOrigin).
func (i *Instances) Assigned(v store.View) map[string]lb.Instance {
	set := make(map[string]lb.Instance)
	for one := range i.All(v) {
		one = one.AtOrigin(i.origin)
		set[one.Key()] = one
	}
	return set
}

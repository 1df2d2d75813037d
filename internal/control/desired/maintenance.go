package desired

import (
	"loxilb/internal/control/store"
	"loxilb/internal/kinds"
	"loxilb/internal/lb"
)

// Maintenance is the table of this node's maintenance: one object, or none.
type Maintenance struct{ store.Table[lb.Maintenance] }

// OfThisNode returns the maintenance of this node, or nil if the node is in service.
func (m *Maintenance) OfThisNode(v store.View) *lb.Maintenance {
	one, ok := m.Get(v, kinds.MaintenanceKey)
	if !ok {
		return nil
	}
	return &one
}

package kinds

import (
	v1 "loxilb/api/v1"
	"loxilb/internal/host/monotime"
	"loxilb/internal/lb"
)

// MaintenanceName is the name of the kind in messages and journals.
const MaintenanceName = "maintenance"

// MaintenanceKey is the key of the only object: this node's.
const MaintenanceKey = "node"

// Maintenance registers that this node is taken out of service. Files do not contain it, so a
// copied configuration does not drain another node.
func Maintenance() *Kind[lb.Maintenance, v1.NodeMaintenance] {
	stored := asJSON(func(lb.Maintenance) string { return MaintenanceKey }, func(lb.Maintenance) error { return nil })
	stored.Equal = func(a, b lb.Maintenance) bool {
		return a.Since.Equal(b.Since) && sameDeadline(a.Deadline, b.Deadline) && a.Exit == b.Exit && a.Drained == b.Drained
	}
	decode := stored.Decode
	stored.Decode = func(format int, object []byte) (lb.Maintenance, error) {
		m, err := decode(format, object)
		m.Deadline = monotime.FromWall(m.Deadline) // a clock that is set later does not move it
		return m, err
	}
	return &Kind[lb.Maintenance, v1.NodeMaintenance]{
		Words:  Words{Name: MaintenanceName, Command: "maintenance", List: "maintenanceAttr"},
		Stored: stored,
	}
}

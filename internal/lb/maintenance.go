package lb

import "time"

// Maintenance takes this node out of service: routes become less preferred, and are withdrawn once
// packets have ceased, or at the deadline.
type Maintenance struct {
	Since    time.Time `json:"since"`
	Deadline time.Time `json:"deadline,omitzero"` // zero: none
	Exit     bool      `json:"exit,omitempty"`    // the daemon exits once the node is drained
	Drained  bool      `json:"drained,omitempty"` // VIPs are withdrawn
}

// Stage is the progress of maintenance.
type Stage string

// The stages.
const (
	InService Stage = "in service"
	Draining  Stage = "draining"
	Drained   Stage = "drained"
)

// Stage returns the stage of maintenance. m may be nil: there is none.
func (m *Maintenance) Stage() Stage {
	switch {
	case m == nil:
		return InService
	case m.Drained:
		return Drained
	}
	return Draining
}

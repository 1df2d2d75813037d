package report

import "time"

// DrainProgress is the progress of a node's drain.
type DrainProgress struct {
	Connections uint64        // open connections of services
	PacketRate  float64       // packets of services per second
	Idle        time.Duration // without packets
}

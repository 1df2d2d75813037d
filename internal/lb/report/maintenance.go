package report

import "time"

// DrainProgress is how far the drain of a node is.
type DrainProgress struct {
	Connections uint64        // open connections of services
	PacketRate  float64       // packets of services per second
	Idle        time.Duration // without packets
}

// Package lb is the domain of the load balancer: what a service, an endpoint, a mode and an algorithm
// are, how they are written, and which of them are allowed. It knows no wire format, no map and no socket.
package lb

import (
	"net/netip"
	"time"
)

// Key names a service: what a packet must carry to belong to it. Two services never share a key.
type Key struct {
	VIP      netip.Addr // IPv4 or IPv6, never v4-mapped, never with a zone
	Port     uint16     // host byte order; 0 only for protocols without ports
	Protocol Protocol
}

// Endpoint is a server behind a service.
type Endpoint struct {
	Addr   netip.Addr // same family as the VIP in default mode
	Port   uint16     // host byte order
	Weight uint16     // 0 takes no new connection, and keeps those it has
}

// Service is the desired state of one service, as its owner wrote it. The order of Endpoints is the order of
// round robin.
type Service struct {
	Key
	Name        string // free text, may be empty; services may share it
	Mode        Mode
	Algorithm   Algorithm
	Endpoints   []Endpoint
	IdleTimeout time.Duration // 0: the protocol's default; whole seconds, at most 24 h
	Managed     bool          // owned by a controller; left out of `loxicmd save`
}

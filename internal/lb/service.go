// Package lb is the domain of the load balancer: it defines services, endpoints, modes and
// algorithms, the names of their fields (Fields), and which values are allowed. It is independent
// of maps and sockets.
package lb

import (
	"net/netip"
	"time"
)

// Key identifies a service: the properties of its packets. Two services never share a key, nor do
// port ranges of services with one VIP, protocol and mark overlap; except that services with a
// single port may lie within a range, and ranges within AllPorts: the more specific service gets
// the packet.
type Key struct {
	VIP      netip.Addr // IPv4 or IPv6, never v4-mapped, never with a zone
	Port     uint16     // host byte order; 0 only for protocols without ports
	PortMax  uint16     // last of a range of ports, above Port; 0: one port
	Protocol Protocol
	Mark     uint32 // the mark (skb->mark) of its packets; 0: any mark that no other service has
}

// Endpoint is a server behind a service.
type Endpoint struct {
	Addr netip.Addr // IPv4 or IPv6, whatever the VIP is (Service.Translates)
	Port uint16     // host byte order
	// PortMax makes the endpoint listen on as many ports as the service has, Port to PortMax: the
	// service's first port maps to Port, and so on. 0: all ports of the service map to Port.
	PortMax uint16
	Weight  uint16 // 0 takes no new connections, and keeps those it has
	Backup  uint8  // its level: an endpoint above 0 takes new connections only while lower levels have too few endpoints, see Service.Level
}

// Service is the desired state of one service, as its owner wrote it. The order of Endpoints is the
// order of round robin.
type Service struct {
	Key
	ConnectionLimits
	Name        string // free text, may be empty; services may share it
	Mode        Mode
	Algorithm   Algorithm
	Endpoints   []Endpoint
	IdleTimeout time.Duration  // 0: the protocol's default; whole seconds, at most 24 h
	Secondary   []netip.Addr   // secondary VIPs, of the same IP version: the same service, with the same endpoints and counters
	Sources     []netip.Prefix // that may open connections, of the VIP's IP version, as NormalSources leaves them; none: all
	Denied      []netip.Prefix // denied prefixes, in the same form; a source in both lists is denied
	// With Persist: how long a client that opens no connection is remembered, in whole seconds up
	// to 24 h, 0 for DefaultPersistTimeout; and how many bits of its address identify the client, 0
	// for all of them.
	PersistTimeout time.Duration
	PersistPrefix  uint8
	SNAT           []netip.Addr  // source addresses that replace the mode's; each has its own ports
	Egress         bool          // connections that its endpoints open outwards leave with the VIP for a source, or one of SNAT; see GivesSource
	BGP            bool          // announces its VIPs by BGP
	Refuse         Refusal       // of packets that it has no use for
	SynProtect     SynProtect    // TCP: when unknown clients are challenged
	Tunnel         Tunnel        // with ModeDSR: how endpoints are reached
	MSS            uint16        // largest TCP segment that the two sides may agree on; 0: any
	Managed        bool          // owned by a controller; an update does not change it
	Monitor        bool          // endpoints are probed, and those that are down take no new connections; see Monitored
	Probe          Probe         // how
	Outlier        Outlier       // whether endpoints with failing handshakes are taken out
	AllDown        AllDown       // of new connections while no endpoint is up
	SlowStart      time.Duration // how long a new endpoint takes to reach its full share; 0: no ramp
	FailoverBelow  uint8         // percentage of the weight of a level of endpoints, below which the next level joins it; 0: only when no endpoint is left
	OnRemove       Closing       // for open connections of endpoints that are removed from the service
	OnFail         Closing       // ... of those that are down
	DrainTime      time.Duration // how long ClosingDrain leaves them, in whole seconds up to 24 h; 0: DefaultDrainTime
}

// Package lb is the domain of the load balancer: what a service, an endpoint, a mode and an
// algorithm are, what their fields are called everywhere (Fields), and which of them are allowed.
// It knows no map and no socket.
package lb

import (
	"net/netip"
	"time"
)

// Key names a service: what a packet must carry to belong to it. Two services never share a key,
// nor do the ranges of two with one VIP, protocol and mark overlap; but there may be services of
// single ports within a range, and of ranges beside one of AllPorts, which take what is theirs.
type Key struct {
	VIP      netip.Addr // IPv4 or IPv6, never v4-mapped, never with a zone
	Port     uint16     // host byte order; 0 only for protocols without ports
	PortMax  uint16     // last of a range of ports, above Port; 0: one port
	Protocol Protocol
	Mark     uint32 // the mark (skb->mark) of its packets; 0: those of any mark that no other service wants
}

// Endpoint is a server behind a service.
type Endpoint struct {
	Addr netip.Addr // IPv4 or IPv6, whatever the VIP is (Service.Translates)
	Port uint16     // host byte order
	// PortMax makes the endpoint listen on as many ports as the service has, Port to PortMax: the
	// service's first goes to Port, and so on. 0: all ports of the service go to Port.
	PortMax uint16
	Weight  uint16 // 0 takes no new connection, and keeps those it has
	Backup  uint8  // its level: one above 0 takes new connections only while those below have too few endpoints, see Service.Level
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
	Secondary   []netip.Addr   // further VIPs, of the IP version of the first: the same service, with the same endpoints and counters
	Sources     []netip.Prefix // that may open connections, of the VIP's IP version, as NormalSources leaves them; none: all
	Denied      []netip.Prefix // that may not, of the same form; a source in both lists may not
	// With Persist: how long a client that opens no connection is remembered, in whole seconds up
	// to 24 h, 0 for DefaultPersistTimeout; and how many bits of its address make it the client
	// that it is, 0 for all of them.
	PersistTimeout time.Duration
	PersistPrefix  uint8
	SNAT           []netip.Addr  // that the source becomes, instead of what the mode says; each has ports of its own
	Egress         bool          // connections that its endpoints open outwards leave with the VIP for a source, or one of SNAT; see GivesSource
	BGP            bool          // its VIPs are to be advertised by BGP
	Refuse         Refusal       // of packets that it has no use for
	SynProtect     SynProtect    // TCP: when unknown clients are challenged
	Tunnel         Tunnel        // with ModeDSR: how endpoints are reached
	MSS            uint16        // largest TCP segment that the two sides may agree on; 0: any
	Managed        bool          // owned by a controller; an update does not change it
	Monitor        bool          // endpoints are probed, and those that are down take no new connections; see Monitored
	Probe          Probe         // how
	Outlier        Outlier       // whether endpoints are taken out with which handshakes fail
	AllDown        AllDown       // of new connections while no endpoint is up
	SlowStart      time.Duration // how long an endpoint that comes takes to have all of its share; 0: no time
	FailoverBelow  uint8         // percent of the weight of a level of endpoints, below which the next one joins it; 0: only when none is left
	OnRemove       Closing       // of open connections of endpoints that are taken out of the service
	OnFail         Closing       // ... of those that are down
	DrainTime      time.Duration // how long ClosingDrain leaves them, in whole seconds up to 24 h; 0: DefaultDrainTime
}

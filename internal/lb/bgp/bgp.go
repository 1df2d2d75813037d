// Package bgp has the BGP of a node as users configure it (RFC 4271): the speaker, its neighbors,
// and the routes that announce VIPs.
package bgp

import (
	"net/netip"
	"time"

	"loxilb/internal/lb"
)

// Speaker is this node as a BGP speaker. A node has at most one.
type Speaker struct {
	ASN         uint32     `json:"asn"`
	RouterID    netip.Addr `json:"routerId,omitzero"` // IPv4; zero: an IPv4 address of this node
	Port        uint16     `json:"port,omitempty"`    // to listen at; 0: DefaultPort
	NextHopSelf bool       `json:"nextHopSelf,omitempty"`
	// GracefulRestart is how long neighbors keep routes of a node whose daemon restarts (RFC
	// 4724); 0: they withdraw them at once. At most 4,095 s.
	GracefulRestart time.Duration `json:"gracefulRestart,omitempty"`
	// Install adds routes that neighbors announce to the kernel's main table, as protocol bgp.
	Install bool `json:"install,omitempty"`
	// MaxPrefixes ends the session with a neighbor that announces more; 0: DefaultMaxPrefixes.
	MaxPrefixes uint32 `json:"maxPrefixes,omitempty"`
}

// DefaultMaxPrefixes is how many prefixes of each IP version a neighbor may announce.
const DefaultMaxPrefixes = 50_000

// DefaultPort is the port of BGP.
const DefaultPort = 179

// Neighbor is a BGP neighbor, by its address or, unnumbered, by the interface that leads to it.
type Neighbor struct {
	Addr      netip.Addr    `json:"addr,omitzero"`
	Interface string        `json:"interface,omitempty"` // without an address: the neighbor is the router on this link (RFC 5549)
	ASN       uint32        `json:"asn"`
	Port      uint16        `json:"port,omitempty"`      // that it listens at; 0: DefaultPort
	Source    netip.Addr    `json:"source,omitzero"`     // this node's address; zero: the kernel selects it
	Multihop  uint8         `json:"multihop,omitempty"`  // TTL of sessions to a neighbor behind routers; 0: off
	Password  string        `json:"password,omitempty"`  // TCP MD5 signature (RFC 2385)
	Hold      time.Duration `json:"hold,omitempty"`      // 0: 90 s
	Keepalive time.Duration `json:"keepalive,omitempty"` // 0: a third of Hold
	Retry     time.Duration `json:"retry,omitempty"`     // between attempts to connect; 0: a default of seconds
	Passive   bool          `json:"passive,omitempty"`   // only the neighbor connects
	BFD       BFD           `json:"bfd,omitzero"`
	// NoGracefulRestart has this neighbor drop routes as soon as the session ends. BFD implies
	// it: a node whose failure BFD detects must not keep its routes.
	NoGracefulRestart bool `json:"noGracefulRestart,omitempty"`
}

// BFD detects within Interval x Multiplier that a neighbor is silent (RFC 5880, 5881).
type BFD struct {
	Interval   time.Duration `json:"interval,omitempty"`   // of sent and expected packets; 0: no BFD
	Multiplier uint8         `json:"multiplier,omitempty"` // 0: 3
}

// Route is a route that this node announces.
type Route struct {
	Prefix netip.Prefix
	Attributes
}

// Attributes are the optional path attributes of a route.
type Attributes struct {
	MED         uint32      // lower is preferred
	LocalPref   uint32      // to neighbors of the same AS; higher is preferred
	Communities []Community // ascending (RFC 1997)
	Prepend     uint8       // how many more times the AS path begins with this AS
}

// Community is a BGP community (RFC 1997): AS number and value, 16 bits each.
type Community = lb.Community

// GracefulShutdown asks routers to prefer all other paths (RFC 8326).
const GracefulShutdown Community = 0xffff0000

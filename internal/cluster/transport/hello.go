package transport

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// The versions of the protocol between nodes: a build speaks two, so nodes can be upgraded one
// after the other.
const (
	Version = 2
	Oldest  = 1
)

// clientsVersion is the first version that exchanges the clients of --select=persist.
const clientsVersion = 2

// A Feature is an optional part of the protocol. A node sends it only to nodes whose Hello lists
// it, so features need no new version, and their order does not matter.
type Feature string

// FeatureState is the exchange of states: roles, connections, and the services that peers compare
// with their own.
const FeatureState Feature = "state"

// FeatureSCTP is records of associations of SCTP.
const FeatureSCTP Feature = "sctp"

// FeaturePacked is packed records: half as many bytes per connection. It includes SCTP.
const FeaturePacked Feature = "packed"

// FeatureEnds is ends of connections that a node may have missed while it was away. It includes
// FeaturePacked.
const FeatureEnds Feature = "ends"

// Features returns the features of this build.
func Features() []Feature { return []Feature{FeatureState, FeatureSCTP, FeaturePacked, FeatureEnds} }

// Hello is a node's greeting before it exchanges connections.
type Hello struct {
	Version     int    `json:"version"`     // newest version of the protocol
	Oldest      int    `json:"oldest"`      // oldest version of the protocol
	Build       string `json:"build"`       // of loxilb, for users
	Node        string `json:"node"`        // name; certified
	Self        int    `json:"self"`        // number by --self; -1: none
	Boot        string `json:"boot"`        // random, of the process
	Seed        string `json:"seed"`        // fingerprint of --hash-seed
	Slots       int    `json:"slots"`       // size of the tables of the algorithms hash and persist
	Revision    uint64 `json:"revision"`    // of the configuration, for users
	NewTable    bool   `json:"newTable"`    // the node lacks connections that it had opened, which the peer may have
	Connections int    `json:"connections"` // in its table; missing in older nodes' greetings
	Joining     bool   `json:"joining"`     // the node does not announce its VIPs; false for older nodes

	Features []Feature `json:"features"` // features of the node; none: an older node
}

// welcome is the answer to a Hello: the other node's Hello, or why it refuses.
type welcome struct {
	Hello   Hello  `json:"hello"`
	Refused string `json:"refused,omitempty"`
}

// ErrSelf reports that the peer is this process.
var ErrSelf = errors.New("the address is this node's own")

// Fingerprint identifies a hash seed without revealing it.
func Fingerprint(seed uint64) string {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64([]byte("loxilb hash seed "), seed))
	return hex.EncodeToString(sum[:8])
}

const (
	maxBuild    = 100 // characters
	maxSentence = 500
)

// clip shortens a peer's text, which is shown in tables and logs.
func clip(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most]) + "..."
}

// SupportsClients reports whether the node understands records of clients.
func (h *Hello) SupportsClients() bool { return h.Version >= clientsVersion }

// Supports reports whether the node supports a feature; all nodes support "".
func (h *Hello) Supports(f Feature) bool { return f == "" || slices.Contains(h.Features, f) }

// CheckCompatible returns an error if the nodes must not exchange connections.
func (h *Hello) CheckCompatible(peer *Hello) error {
	switch {
	case peer.Boot == h.Boot:
		return ErrSelf
	case peer.Version < h.Oldest || h.Version < peer.Oldest:
		return fmt.Errorf("node %q speaks versions %d to %d of the protocol between nodes, and node %q versions %d to %d: upgrade one version after the other",
			peer.Node, peer.Oldest, peer.Version, h.Node, h.Oldest, h.Version)
	case peer.Node == h.Node:
		return fmt.Errorf("both nodes are named %q: give each its own --cluster-node", h.Node)
	case peer.Self >= 0 && peer.Self == h.Self:
		return fmt.Errorf("nodes %q and %q both have --self=%d: give each its own number", h.Node, peer.Node, h.Self)
	case peer.Seed != h.Seed:
		return fmt.Errorf("nodes %q and %q have different values of --hash-seed, so they choose different endpoints for a client: use the same on all nodes", h.Node, peer.Node)
	case peer.Slots != h.Slots:
		return fmt.Errorf("nodes %q and %q have tables of %d and %d slots for the algorithm hash, so they choose different endpoints for a client: use builds with the same", h.Node, peer.Node, h.Slots, peer.Slots)
	}
	return nil
}

package report

import "time"

// ClusterPeer is another node of the cluster, as this node sees it.
type ClusterPeer struct {
	Address    string // as configured, with its port; of a node that only dials this one, its own
	Node       string // its name; empty: not known yet
	State      PeerState
	Reason     string    // why it is not connected, or sends nothing; empty: neither
	Sends      bool      // it sends its connections to this node
	Since      time.Time // of the state
	Build      string    // its version of loxilb
	Revision   uint64    // of its configuration
	Lag        time.Duration
	Queued     int // bytes that wait for it
	Sent       uint64
	Received   uint64 // records
	Results    [CopyResults]uint64
	Parked     int    // records that wait for their service or endpoint
	Dropped    uint64 // records whose service or endpoint did not come
	BulkCopies uint64 // how often it was sent all connections

	// The peer's own state; zero: unknown.
	Roles       []string // INSTANCE ROLE each
	Maintenance string   // draining or drained; empty: it is in service
	Connections int      // in its table
	Peers       int      // with which it exchanges connections
	Differing   int      // services that it has otherwise than this node
	Differences []string // the first ones, and how they differ
}

// Called returns the peer's name, or its address before that is known.
func (p *ClusterPeer) Called() string {
	if p.Node != "" {
		return p.Node
	}
	return p.Address
}

// PeerState is the state of the exchange with a peer.
type PeerState string

// The states of a peer.
const (
	PeerDown    PeerState = "down"    // no connection
	PeerRefused PeerState = "refused" // one of the two nodes refuses the other
	PeerCopying PeerState = "copying" // it gets all connections
	PeerUp      PeerState = "up"      // it has all connections, and gets what changes
)

// Exchanges reports whether the peer gets connections.
func (s PeerState) Exchanges() bool { return s == PeerUp || s == PeerCopying }

// Cluster is this node in its cluster.
type Cluster struct {
	Node     string
	Self     int      // --self; -1: none
	Listen   string   // address at which peers connect
	Joined   bool     // it has the connections of the others, or the time for them is over
	Held     string   // why its VIPs are not announced although it has joined; empty: they may be
	Problems []string // problems of its key, its certificate, or names of nodes
	Lost     uint64   // copies that found the ring of the packet path full, and were found again by scans
	Peers    []ClusterPeer
}

// Node is a node of the cluster, or that shares its configuration; members are zero if unknown.
type Node struct {
	Name        string
	Own         bool      // it is this node
	Lost        string    // why it is missing; empty: it is not
	Since       time.Time // of Lost, or when its daemon has started
	Build       string    // its version of loxilb
	Roles       []string
	Maintenance string   // draining or drained; empty: it is in service, or that is not known
	Shared      bool     // it uses the shared store:
	Revision    uint64   // of the last change there that it has applied
	Behind      bool     // there are later ones
	Addresses   []string // IP:PORT where nodes reach it, as far as it shows them there
	Connections int
	Exchanges   bool          // it exchanges connections with this node:
	State       PeerState     // how far that is
	Alone       string        // why it does not get the connections of this one, or sends none, although it is there
	Lag         time.Duration // delay of this node's connections at the peer
	Peers       int           // with which it exchanges connections
	Differing   int           // services that it has otherwise than this node
}

package report

import "time"

// ClusterPeer is another node of the cluster, as this node sees it.
type ClusterPeer struct {
	Address    string // as configured, with the port; if only the peer dials this node, its source address
	Node       string // its name; empty: not known yet
	State      PeerState
	Reason     string    // why it is not connected, or sends nothing; empty: neither is the case
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
	Dropped    uint64 // records that waited for their service or endpoint in vain
	BulkCopies uint64 // how often this node has sent it all connections

	// The peer's own state; zero: unknown.
	Roles       []string // each "INSTANCE ROLE"
	Maintenance string   // draining or drained; empty: it is in service
	Connections int      // in its table
	Peers       int      // nodes that it exchanges connections with
	Differing   int      // services that are different on this node
	Differences []string // the first of them, and how they differ
}

// DisplayName returns the peer's name, or its address while the name is unknown.
func (p *ClusterPeer) DisplayName() string {
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
	PeerCopying PeerState = "copying" // it is being sent all connections
	PeerUp      PeerState = "up"      // it has all connections, and is sent changes
)

// Exchanges reports whether the peer gets connections.
func (s PeerState) Exchanges() bool { return s == PeerUp || s == PeerCopying }

// Cluster is this node in its cluster.
type Cluster struct {
	Node     string
	Self     int      // --self; -1: none
	Listen   string   // address at which peers connect
	Joined   bool     // it has the connections of the others, or no longer waits for them
	Held     string   // why its VIPs are not announced although it has joined; empty: no reason
	Problems []string // problems of its key, its certificate, or names of nodes
	Lost     uint64   // copies that the full ring of the packet path dropped, and scans sent later
	Peers    []ClusterPeer
}

// Node is a node of the cluster, or a node with the same shared store. Unknown members are zero.
type Node struct {
	Name        string
	Own         bool      // it is this node
	Away        string    // why it is away; empty: it is there
	Since       time.Time // when it went away, or when its daemon started
	Build       string    // its version of loxilb
	Roles       []string
	Maintenance string // draining or drained; empty: it is in service, or that is unknown
	Connections int
	Peers       int // nodes that it exchanges connections with
	Differing   int // services that are different on this node

	// The shared store.
	Shared    bool     // it uses the store
	Revision  uint64   // of the last change in the store that it has applied
	Behind    bool     // the store has later changes
	Addresses []string // IP:PORT where nodes reach it, if it shows them in the store

	// The exchange of connections with this node.
	Exchanges   bool
	State       PeerState
	SyncProblem string        // why it does not get the connections of this node, or sends none, although it is there
	Lag         time.Duration // delay of this node's connections at the peer
}

// Package cluster copies connections between nodes, so each node has those of all: it sends this
// node's connections to its peers, and inserts theirs (docs/adr/0092-connection-sync.md). No node
// has a special role.
package cluster

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"loxilb/internal/cluster/transport"
	"loxilb/internal/event"
	"loxilb/internal/lb/report"
)

// Table is the connection table.
type Table interface {
	LoadCopies() error
	WatchCopies(ctx context.Context, yield func(list []report.ConnectionCopy, lost uint64)) error
	ScanCopies(ctx context.Context, what report.CopySelection, yield func([]report.ConnectionCopy) error) error
	ScanClients(ctx context.Context, yield func([]report.ClientCopy) error) error
	PutClients(ctx context.Context, list []report.ClientCopy, unknown []bool) error
	PutCopies(ctx context.Context, list []report.ConnectionCopy, results []report.CopyResult) error
	// KeepQuiet leaves TCP segments of unknown connections unanswered for a while, and drops those
	// that services forward by hash for a shorter while.
	KeepQuiet(d, hashed time.Duration) error
	// ExpectCopies makes room for so many connections in total.
	ExpectCopies(ctx context.Context, connections int) error
	CountConnections() int
	NewTable() bool
}

// Config configures the node.
type Config struct {
	Peers    []string // HOST:PORT each
	Nodes    []string // HOST:PORT each, until SetNodes replaces them
	Listen   string   // ADDRESS:PORT
	Hello    transport.Hello
	Revision func() uint64 // of the configuration
	// State returns the state that the node shares with its peers, with its services if
	// withServices is set. nil: nothing is shared.
	State       func(withServices bool) State
	Credentials *transport.Credentials
	Table       Table
	Events      interface{ Publish(bodies ...event.Body) }
	Log         *slog.Logger
	HoldChanged func() // called when Held has changed; may be nil

	refusalTime time.Duration // how long a refusal by a serving node is valid; 0: refusalTime
	lingerTime  time.Duration // 0: lingerTime

	resolveEvery time.Duration // 0: resolveEvery
	goneTime     time.Duration // 0: goneTime
	oneWayTime   time.Duration // 0: oneWayTime
	staleTime    time.Duration // 0: transport.MaxSilence

	features []transport.Feature // nil: those of this build
}

// Node is this node in its cluster.
type Node struct {
	Config
	listener net.Listener
	lost     atomic.Uint64
	join     join
	hold     hold
	parked   parked[report.ConnectionCopy]
	clients  parked[report.ClientCopy]
	ends     ends
	faults   faults

	mu           sync.Mutex
	peers        []*peer              // by address
	sources      map[string]*source   // that send to this node, by name
	departed     map[string]time.Time // when former sources have left, maxSources at most
	nodes        []string             // SetNodes
	named        map[string]*name     // configured nodes
	namesChanged chan struct{}        // closed when they change
	own          ownState
}

// New listens for peers.
func New(c Config) (*Node, error) {
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for the nodes of the cluster: %w", err)
	}
	c.Hello.Version, c.Hello.Oldest = transport.Version, transport.Oldest
	c.Hello.NewTable, c.Hello.Features = c.Table.NewTable(), c.features
	if c.features == nil {
		c.Hello.Features = transport.Features()
	}
	c.refusalTime, c.lingerTime = cmp.Or(c.refusalTime, refusalTime), cmp.Or(c.lingerTime, lingerTime)
	c.resolveEvery, c.goneTime = cmp.Or(c.resolveEvery, resolveEvery), cmp.Or(c.goneTime, goneTime)
	c.oneWayTime, c.staleTime = cmp.Or(c.oneWayTime, oneWayTime), cmp.Or(c.staleTime, transport.MaxSilence)
	return &Node{
		Config: c, listener: l, sources: map[string]*source{}, departed: map[string]time.Time{}, nodes: c.Nodes, named: map[string]*name{}, namesChanged: make(chan struct{}), join: join{done: make(chan struct{})},
		hold: hold{reason: "this node does not have the connections of the other nodes yet", isolationChanged: make(chan struct{}, 1), released: make(chan struct{})},
	}, nil
}

// lingerTime is how long a stopping node continues to send connections: routers are only now
// learning to use other nodes, and the kernel of this one opens connections meanwhile.
const lingerTime = 250 * time.Millisecond

// Run exchanges connections until ctx ends, and lingerTime longer.
func (n *Node) Run(ctx context.Context) {
	if err := n.Table.LoadCopies(); err != nil {
		n.Log.Error("connections are not exchanged with other nodes", "error", err)
		n.faults.set(noExchange, err)
		_ = n.listener.Close() // other nodes must not wait for an answer
		n.setHeld("")
		n.join.finish()
		return
	}
	n.keepQuiet()
	lasting, end := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	for _, f := range []func(context.Context){n.watch, n.refresh, n.retryParked, n.listen, n.followState, n.followCredentials} {
		running.Go(func() { f(lasting) })
	}
	running.Go(func() { n.resolve(lasting, &running) })
	n.awaitPeers(ctx)
	n.awaitAcceptance(ctx)
	n.followIsolation(ctx)
	n.notifyRerouted()
	time.Sleep(n.lingerTime)
	end()
	running.Wait()
}

// SetNodes replaces the nodes besides Config.Peers, HOST:PORT each.
func (n *Node) SetNodes(addresses []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if slices.Equal(n.nodes, addresses) {
		return
	}
	n.nodes = addresses
	close(n.namesChanged)
	n.namesChanged = make(chan struct{})
}

// names returns all configured nodes, and a channel that is closed when they change.
func (n *Node) names() ([]string, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Concat(n.Peers, n.nodes), n.namesChanged
}

// listen accepts nodes.
func (n *Node) listen(ctx context.Context) {
	host := transport.Host{
		Hello: n.hello, Credentials: n.Credentials, IsNode: n.isNodeAt, CheckPeer: n.checkName, HasConnectionsOf: n.hasConnectionsOf,
		Handle:  func(c *transport.Conn) { n.receive(ctx, c) },
		Refused: func(from string, err error) { n.Log.Warn("refused a node", "from", hostOf(from), "error", err) },
		Failing: func(err error) { n.Log.Warn("nodes of the cluster cannot connect for now", "error", err) },
	}
	if err := host.Serve(ctx, n.listener); err != nil && ctx.Err() == nil {
		n.Log.Error("nodes of the cluster cannot connect", "error", err)
	}
}

// isNodeAt reports whether an address is that of a configured node.
func (n *Node) isNodeAt(host string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.ContainsFunc(n.peers, func(p *peer) bool { return hostOf(p.address) == host })
}

// hello returns this node's current greeting.
func (n *Node) hello() *transport.Hello {
	h := n.Hello
	h.Revision = n.revision()
	h.Joining, h.Connections = !n.serves(), n.Table.CountConnections()
	return &h
}

func (n *Node) revision() uint64 {
	if n.Revision == nil {
		return 0
	}
	return n.Revision()
}

// MembershipChanged prepares for packets of connections that other nodes have opened: a node has
// joined or left, this one has another role, or a router begins to send packets here. Unknown
// segments are left unanswered for a while, and unreachable peers are retried at once.
func (n *Node) MembershipChanged() {
	if n == nil {
		return
	}
	n.keepQuiet()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.peers {
		p.connectNow()
	}
}

// Status describes the node and its peers.
func (n *Node) Status() report.Cluster {
	out := report.Cluster{Node: n.Hello.Node, Self: n.Hello.Self, Listen: n.listener.Addr().String(), Lost: n.lost.Load()}
	select {
	case <-n.join.done:
		out.Joined, out.Held = true, n.HeldReason()
	default:
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	named := map[string]bool{}
	out.Peers, out.Problems = n.unresolved()
	out.Problems = append(out.Problems, n.credentialProblems(time.Now())...)
	out.Problems = append(out.Problems, n.faults.describe()...)
	for _, s := range n.peerStatuses() {
		src := n.sources[s.Node]
		if src != nil {
			src.addTo(&s)
		}
		if s.State.Exchanges() && time.Since(s.Since) > n.oneWayTime && !src.isLive(n.oneWayTime) {
			s.Reason = "it sends no connections to this node: run loxicmd get cluster at node " + s.Node + " for the reason"
		}
		named[s.Node] = true
		out.Peers = append(out.Peers, s)
	}
	for name, src := range n.sources {
		if named[name] {
			continue
		}
		out.Peers = append(out.Peers, src.unanswered(name))
	}
	slices.SortFunc(out.Peers, func(a, b report.ClusterPeer) int {
		return cmp.Or(cmp.Compare(a.DisplayName(), b.DisplayName()), cmp.Compare(a.Address, b.Address))
	})
	return out
}

// peerStatuses returns the state of each configured address, without further addresses of this node
// and of connected ones. Only one address has a node's name, the connected one if any: a node may
// have moved to another. The caller has locked the node.
func (n *Node) peerStatuses() (list []report.ClusterPeer) {
	for _, p := range n.peers {
		if !p.isHidden() {
			list = append(list, p.status())
		}
	}
	slices.SortStableFunc(list, func(a, b report.ClusterPeer) int {
		switch {
		case a.State.Exchanges() == b.State.Exchanges():
			return 0
		case a.State.Exchanges():
			return -1
		}
		return 1
	})
	named := map[string]bool{}
	for i := range list {
		if named[list[i].Node] {
			list[i].Node = ""
		}
		named[list[i].Node] = true
	}
	return list
}

package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"loxilb/internal/cluster/transport"
	"loxilb/internal/host/monotime"
	"loxilb/internal/lb/report"
)

const (
	// stateEvery is how often a node sends its state to its peers, and compares their services with
	// its own.
	stateEvery = 2 * time.Second
	// driftTime is how long services differ before that is a problem: users change one node after
	// the other.
	driftTime = 10 * time.Second
	// maxDifferences bounds the differing services that are listed by name.
	maxDifferences = 10
	// statePart is the number of services in a frame. maxServices bounds the services that a node
	// remembers of another node.
	statePart   = 400
	maxServices = 1 << 16
	// maxRoles bounds the roles that are remembered of a node.
	maxRoles = 100
	// servicesBytes bounds the total length of their names and fingerprints.
	servicesBytes = 8 << 20
)

// State is the state of a node that it shares with its peers.
type State struct {
	Roles       []string          // INSTANCE ROLE each
	Maintenance string            // draining or drained; empty: the node is in service
	Services    map[string]string // fingerprints of their settings, by name
}

// stateFrame is a State in parts, as nodes send it. Services follow only if they have changed.
type stateFrame struct {
	Connections int               `json:"connections"`
	Peers       int               `json:"peers"` // peers that exchange connections with it
	Revision    uint64            `json:"revision"`
	Roles       []string          `json:"roles"`
	Maintenance string            `json:"maintenance,omitempty"` // missing in frames of older nodes
	Services    map[string]string `json:"services,omitempty"`    // a part of the services
	First       bool              `json:"first,omitempty"`       // replaces the services of earlier frames
	Last        bool              `json:"last,omitempty"`        // the last part of the services
}

// ownState is the latest state of this node.
type ownState struct {
	revision uint64
	changes  int // how often services have changed
	State
}

// followState renews the node's state, and compares the services of its peers, until ctx ends.
func (n *Node) followState(ctx context.Context) {
	for n.State != nil {
		n.renewState()
		n.compareServices()
		if !monotime.Sleep(ctx, stateEvery) {
			return
		}
	}
}

// renewState updates the services if the configuration has changed.
func (n *Node) renewState() {
	revision := n.revision()
	n.mu.Lock()
	now := n.own
	n.mu.Unlock()
	s := n.State(now.changes == 0 || now.revision != revision)
	now.Roles, now.Maintenance = s.Roles, s.Maintenance
	if s.Services != nil {
		if now.changes == 0 || !maps.Equal(now.Services, s.Services) {
			now.changes++
		}
		now.revision, now.Services = revision, s.Services
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.own = now
}

// sendState sends this node's state. It includes the services if they have changed since the peer
// got them: since is the result of the last call, the number of changes then.
func (p *peer) sendState(c *transport.Conn, since int) (changes int, err error) {
	n := p.node
	frame := stateFrame{Connections: n.Table.CountConnections(), Revision: n.revision()}
	n.mu.Lock()
	now := n.own
	for _, other := range n.peers {
		if other.isConnected() {
			frame.Peers++
		}
	}
	n.mu.Unlock()
	frame.Roles, frame.Maintenance = now.Roles, now.Maintenance
	if now.changes == 0 || now.changes == since {
		return since, send(c, &frame)
	}
	frame.First = true
	for part := range slices.Chunk(slices.Sorted(maps.Keys(now.Services)), statePart) {
		frame.Services = map[string]string{}
		for _, name := range part {
			frame.Services[name] = now.Services[name]
		}
		if err := send(c, &frame); err != nil {
			return since, err
		}
		frame.First = false
	}
	frame.Services, frame.Last = nil, true
	return now.changes, send(c, &frame)
}

// send sends a frame, with as many roles as fit: a peer disconnects a node with a longer one.
func send(c *transport.Conn, frame *stateFrame) error {
	frame.Roles = frame.Roles[:min(len(frame.Roles), maxRoles)]
	b, err := json.Marshal(frame)
	for err == nil && len(b) > transport.MaxFrame && len(frame.Roles) > 0 {
		frame.Roles = frame.Roles[:len(frame.Roles)/2]
		b, err = json.Marshal(frame)
	}
	if err != nil {
		return err
	}
	return c.SendState(b)
}

// storeState stores a received part of a node's state.
func (s *source) storeState(b []byte) error {
	var frame stateFrame
	if err := json.Unmarshal(b, &frame); err != nil {
		return fmt.Errorf("the peer's state cannot be read: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if frame.First || s.arriving == nil {
		s.arriving, s.arrivingBytes = map[string]string{}, 0
	}
	for name, settings := range frame.Services {
		s.arrivingBytes += len(name) + len(settings)
	}
	if len(s.arriving)+len(frame.Services) > maxServices || s.arrivingBytes > servicesBytes {
		return fmt.Errorf("the peer has more than %d services, or %d bytes of their names", maxServices, servicesBytes)
	}
	maps.Copy(s.arriving, frame.Services)
	if frame.Last {
		s.services, s.arriving = s.arriving, nil
		s.version++
	}
	frame.Services, frame.Roles = nil, frame.Roles[:min(len(frame.Roles), maxRoles)]
	s.state = &frame
	return nil
}

// forgetState forgets the state of an earlier process. The caller has locked the source.
func (s *source) forgetState() {
	s.state, s.services, s.arriving = nil, nil, nil
	s.differing, s.differences, s.differsSince, s.warned, s.compared = 0, nil, time.Time{}, false, [2]int{}
}

// compareServices records which services of each node differ from this node's.
func (n *Node) compareServices() {
	n.mu.Lock()
	own, sources := n.own, maps.Clone(n.sources)
	n.mu.Unlock()
	for name, s := range sources {
		s.compare(own, func(services int, first string) {
			n.Log.Warn("a node of the cluster has other services", "node", name, "services", services, "what", first)
		})
	}
}

// compare records which services differ from this node's, and warns once they have differed for
// driftTime.
func (s *source) compare(own ownState, warn func(services int, first string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.services == nil {
		return
	}
	late := false
	if s.compared != [2]int{own.changes, s.version} {
		s.compared = [2]int{own.changes, s.version}
		s.differing, s.differences = differences(own.Services, s.services)
		if s.differing == 0 {
			late = s.warned
			s.differsSince, s.warned = time.Time{}, false
		} else if s.differsSince.IsZero() {
			s.differsSince = time.Now()
		}
	}
	if s.differing == 0 {
		s.requestAgain(own.changes, late)
	}
	if !s.differsSince.IsZero() && !s.warned && time.Since(s.differsSince) > driftTime {
		s.warned = true
		warn(s.differing, s.differences[0])
	}
}

// requestAgain makes a node send all its connections again, by disconnecting it, if this node has
// dropped many because it did not have their services yet. It parks only few records, for a short
// time. late: services were missing for longer than that. Each change of this node's services
// causes at most one such request. The caller has locked the source.
func (s *source) requestAgain(changes int, late bool) {
	const many = maxParked / 4 // connections of removed endpoints are dropped, too
	missed := s.dropped - s.requested
	if s.live == nil || !s.complete || s.requestedFor == changes || missed < many && !(late && missed > 0) {
		return
	}
	s.requested, s.requestedFor = s.dropped, changes
	_ = s.live.Abort()
}

// differences counts the services that differ between two nodes, and describes the first
// maxDifferences of them.
func differences(own, other map[string]string) (count int, list []string) {
	var names []string
	for name, settings := range own {
		if theirs, ok := other[name]; !ok || theirs != settings {
			names = append(names, name)
		}
	}
	for name := range other {
		if _, ok := own[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names[:min(len(names), maxDifferences)] {
		_, here := own[name]
		_, there := other[name]
		switch {
		case !there:
			list = append(list, name+" is missing there")
		case !here:
			list = append(list, name+" is missing here")
		default:
			list = append(list, name+" has another mode, algorithm or other endpoints there")
		}
	}
	return len(names), list
}

// addState adds the node's state to its status. The caller has locked the source.
func (s *source) addState(out *report.ClusterPeer) {
	if s.state == nil {
		return
	}
	out.Roles, out.Connections, out.Peers = s.state.Roles, s.state.Connections, s.state.Peers
	if s.live != nil {
		out.Maintenance = s.state.Maintenance
	}
	out.Revision = cmp.Or(s.state.Revision, out.Revision)
	if s.live != nil && !s.differsSince.IsZero() && time.Since(s.differsSince) > driftTime {
		out.Differing, out.Differences = s.differing, slices.Clone(s.differences)
	}
}

package store

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

const (
	nodePrefix        = "node/"          // of the paths of nodes
	maxNodes          = 64               // that are remembered
	nodeLag           = 5 * time.Second  // after a change, nodes may not have said yet that they have it
	nodePause         = 5 * time.Second  // before a node's entry is written again after a failure
	nodeMemory        = 24 * time.Hour   // for which a node that is away is shown
	duplicateNameTime = 10 * time.Minute // for which another node with this one's name is reported
	countEvery        = 5 * time.Minute  // between two counts of a node's connections in its entry
)

// RemoteNode is a node that uses the shared store, as it describes itself.
type RemoteNode struct {
	Name        string    `json:"-"`
	Version     string    `json:"version"` // of loxilb
	Roles       []string  `json:"roles,omitempty"`
	Revision    int64     `json:"revision"`              // of the last change of a node that it has applied
	Maintenance string    `json:"maintenance,omitempty"` // draining or drained; empty: it is in service
	Connections int       `json:"connections"`
	Started     time.Time `json:"started"`
	Boot        string    `json:"boot,omitempty"`      // random, of the process; older nodes have none
	Addresses   []string  `json:"addresses,omitempty"` // IP:PORT where nodes of --cluster reach it; older nodes have none

	Behind bool      `json:"-"` // the node has not applied the last change for a while
	Gone   time.Time `json:"-"` // when its entry disappeared; zero: the entry exists
}

// DescribeNode publishes the result of nodeInfo to the other nodes from now on. notify is called
// when the shared store becomes unreachable, with the reason, and when it returns; it must not
// commit.
func (s *Store) DescribeNode(nodeInfo func() RemoteNode, notify func(error)) {
	if sh := s.sharing; sh != nil {
		sh.mu.Lock()
		defer sh.mu.Unlock()
		sh.nodeInfo, sh.notify = nodeInfo, notify
	}
}

// showNode keeps the entry of this node until ctx ends.
func (sh *sharing) showNode(ctx context.Context) {
	for ctx.Err() == nil {
		wait := nodePause
		if sh.describe() == nil {
			wait = nodePause / 10 // the process is starting
		} else if err := sh.remote.Keep(ctx, nodePrefix+sh.node, sh.describe); ctx.Err() == nil {
			sh.log.Debug("this node is not shown to the others", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// describe returns the value of this node's entry; nil: not known yet. The number of connections
// seldom changes: etcd keeps each value until a compaction, which is off by default.
func (sh *sharing) describe() []byte {
	sh.mu.Lock()
	nodeInfo, latest := sh.nodeInfo, sh.latest
	sh.mu.Unlock()
	if nodeInfo == nil {
		return nil
	}
	now := nodeInfo()
	now.Revision, now.Boot = latest, sh.boot
	sh.mu.Lock()
	if sh.publishedAt.IsZero() || time.Since(sh.publishedAt) >= countEvery {
		sh.connections, sh.publishedAt = now.Connections, time.Now()
	}
	now.Connections = sh.connections
	sh.mu.Unlock()
	value, err := json.Marshal(now)
	if err != nil {
		return nil
	}
	return value
}

// takeNodes records the entries about nodes, and returns the other entries.
func (sh *sharing) takeNodes(entries []RemoteEntry) (others []RemoteEntry) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for _, e := range entries {
		name, isNode := strings.CutPrefix(e.Path, nodePrefix)
		if !isNode {
			others = append(others, e)
			continue
		}
		node := RemoteNode{Name: name}
		switch known := sh.nodes[name]; {
		case e.Value == nil && known != nil:
			known.Gone = time.Now()
		case e.Value != nil && json.Unmarshal(e.Value, &node) == nil && (known != nil || sh.hasRoom()):
			sh.nodes[name] = &node
			sh.findDuplicateName(&node)
		}
	}
	return others
}

// findDuplicateName records that another process has written the entry of this node, once this one
// has. The entry of an earlier process is older. The caller holds mu.
func (sh *sharing) findDuplicateName(n *RemoteNode) {
	switch {
	case n.Name != sh.node || n.Boot == "":
	case n.Boot == sh.boot:
		sh.published = true
	case sh.published:
		if !sh.hasDuplicateName() {
			sh.log.Warn("another node of the shared store has this node's name", "name", sh.node)
		}
		sh.duplicateSeen = time.Now()
	}
}

// hasDuplicateName reports whether another node has this one's name. The caller holds mu.
func (sh *sharing) hasDuplicateName() bool {
	return !sh.duplicateSeen.IsZero() && time.Since(sh.duplicateSeen) < duplicateNameTime
}

// hasRoom reports whether another node can be remembered. Without room, it forgets the node that
// has been away for longest: nodes may be short-lived pods.
func (sh *sharing) hasRoom() bool {
	if len(sh.nodes) < maxNodes {
		return true
	}
	var oldest *RemoteNode
	for _, n := range sh.nodes {
		if !n.Gone.IsZero() && (oldest == nil || n.Gone.Before(oldest.Gone)) {
			oldest = n
		}
	}
	if oldest == nil {
		return false
	}
	delete(sh.nodes, oldest.Name)
	return true
}

// forgetNodes records that nodes without an entry have gone.
func (sh *sharing) forgetNodes(entries []RemoteEntry) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for name, n := range sh.nodes {
		there := slices.ContainsFunc(entries, func(e RemoteEntry) bool { return e.Path == nodePrefix+name })
		if !there && n.Gone.IsZero() {
			n.Gone = time.Now()
		}
	}
}

// nodesNow returns all nodes. The caller holds mu.
func (sh *sharing) nodesNow() (list []RemoteNode) {
	for name, n := range sh.nodes {
		if !n.Gone.IsZero() && time.Since(n.Gone) > nodeMemory {
			delete(sh.nodes, name)
			continue
		}
		one := *n
		one.Behind = one.Revision < sh.latest && time.Since(sh.changes) > nodeLag
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b RemoteNode) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// setLatest notes the revision of the head.
func (sh *sharing) setLatest(revision int64) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.latest != revision {
		sh.latest, sh.changes = revision, time.Now()
	}
}

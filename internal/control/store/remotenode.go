package store

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

const (
	nodePrefix        = "node/"          // prefix of nodes' paths
	maxNodes          = 64               // maximum number of remembered nodes
	nodeLag           = 5 * time.Second  // time after a change before nodes that have not reported it are behind
	nodePause         = 5 * time.Second  // pause before a node's entry is written again after a failure
	nodeMemory        = 24 * time.Hour   // how long a node that has gone is listed
	duplicateNameTime = 10 * time.Minute // how long another node with this node's name is reported
	countEvery        = 5 * time.Minute  // interval of updating the number of connections in a node's entry
)

// RemoteNode is a node's description of itself, for the other nodes that use the shared store.
type RemoteNode struct {
	Name        string    `json:"-"`
	Version     string    `json:"version"` // of loxilb
	Roles       []string  `json:"roles,omitempty"`
	Revision    int64     `json:"revision"`              // of the last change by a node that it has applied
	Maintenance string    `json:"maintenance,omitempty"` // draining or drained; empty: it is in service
	Connections int       `json:"connections"`
	Started     time.Time `json:"started"`
	Boot        string    `json:"boot,omitempty"`      // random ID of the process; older nodes have none
	Addresses   []string  `json:"addresses,omitempty"` // IP:PORT where other nodes of --cluster reach it; older nodes have none

	Behind bool      `json:"-"` // the node has not applied the last change for a while
	Gone   time.Time `json:"-"` // when its entry disappeared; zero: the entry exists
}

// DescribeNode makes Follow publish the result of nodeInfo to the other nodes, and call notify when
// the shared store becomes unreachable, with the reason, and with nil when it is reachable again.
// notify must not commit.
func (s *Store) DescribeNode(nodeInfo func() RemoteNode, notify func(error)) {
	if sh := s.sharing; sh != nil {
		sh.mu.Lock()
		defer sh.mu.Unlock()
		sh.nodeInfo, sh.notify = nodeInfo, notify
	}
}

// publishNode keeps the entry of this node until ctx ends.
func (sh *sharing) publishNode(ctx context.Context) {
	for ctx.Err() == nil {
		wait := nodePause
		if sh.nodeEntry() == nil {
			wait = nodePause / 10 // the process is starting
		} else if err := sh.remote.Keep(ctx, nodePrefix+sh.node, sh.nodeEntry); ctx.Err() == nil {
			sh.log.Debug("other nodes do not see this node", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// nodeEntry returns the value of this node's entry; nil: not known yet. It seldom updates the
// number of connections, as etcd keeps each value until a compaction, which is off by default.
func (sh *sharing) nodeEntry() []byte {
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

// recordNodes records the entries of nodes, and returns the other entries.
func (sh *sharing) recordNodes(entries []RemoteEntry) (others []RemoteEntry) {
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

// findDuplicateName records that another process has written the entry of this node. It ignores
// entries from before this process has written its own, as they may be of an earlier process of
// this node. The caller holds mu.
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

// hasRoom reports whether another node can be remembered. If there are too many, it removes the one
// that has been gone for longest: nodes may be short-lived pods.
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

// forgetNodes records that nodes without an entry are gone.
func (sh *sharing) forgetNodes(entries []RemoteEntry) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for name, n := range sh.nodes {
		exists := slices.ContainsFunc(entries, func(e RemoteEntry) bool { return e.Path == nodePrefix+name })
		if !exists && n.Gone.IsZero() {
			n.Gone = time.Now()
		}
	}
}

// listNodes returns all nodes. The caller holds mu.
func (sh *sharing) listNodes() (list []RemoteNode) {
	for name, n := range sh.nodes {
		if !n.Gone.IsZero() && time.Since(n.Gone) > nodeMemory {
			delete(sh.nodes, name)
			continue
		}
		node := *n
		node.Behind = node.Revision < sh.latest && time.Since(sh.latestAt) > nodeLag
		list = append(list, node)
	}
	slices.SortFunc(list, func(a, b RemoteNode) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// setLatest records the revision of the head.
func (sh *sharing) setLatest(revision int64) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.latest != revision {
		sh.latest, sh.latestAt = revision, time.Now()
	}
}

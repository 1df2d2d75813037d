package reconcile

import (
	"context"
	"errors"

	"loxilb/internal/control/desired"
	"loxilb/internal/lb"
)

// Cluster exchanges connections with other nodes.
type Cluster interface {
	// SetNodes replaces the nodes that were created, HOST:PORT each.
	SetNodes(addresses []string)
}

var errNoCluster = errors.New("this node exchanges no connections: start loxilb with --cluster-key, or --cluster-ca")

// ClusterNodes passes the nodes of the store to the cluster.
type ClusterNodes struct {
	*objectLoop[lb.ClusterNode]
	cluster Cluster // nil: there is none
}

// NewClusterNodes returns the loop.
func NewClusterNodes(c Cluster, d *desired.State, o Observers) *ClusterNodes {
	n := &ClusterNodes{cluster: c}
	n.objectLoop = newObjectLoop(n, d, d.ClusterNodes, o)
	return n
}

// Apply passes all nodes.
func (n *ClusterNodes) Apply(_ context.Context, keys []string) (out []Outcome[string]) {
	now := n.desired.Snapshot()
	var err error
	if n.cluster == nil {
		err = errNoCluster
	} else {
		n.cluster.SetNodes(ClusterAddresses(n.desired))
	}
	for _, key := range keys {
		meta, ok := n.table.Meta(now, key)
		one := Outcome[string]{Key: key, Version: meta.Version}
		if ok {
			one.Err = err
		}
		out = append(out, one)
	}
	return out
}

// ClusterAddresses returns the nodes of the store, HOST:PORT each.
func ClusterAddresses(d *desired.State) (list []string) {
	for one := range d.ClusterNodes.All(d.Snapshot()) {
		list = append(list, one.Address)
	}
	return list
}

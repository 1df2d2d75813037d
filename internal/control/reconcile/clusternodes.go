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

// ClusterNodes passes the stored nodes to the cluster.
type ClusterNodes struct {
	*objectLoop[lb.ClusterNode]
	cluster Cluster // nil: the node is not in a cluster
}

// NewClusterNodes returns the loop.
func NewClusterNodes(c Cluster, d *desired.State, o Observers) *ClusterNodes {
	n := &ClusterNodes{cluster: c}
	n.objectLoop = newObjectLoop(n, d, d.ClusterNodes, o)
	return n
}

// Apply passes all nodes.
func (n *ClusterNodes) Apply(_ context.Context, keys []string) []Outcome[string] {
	snapshot := n.desired.Snapshot()
	if n.cluster != nil {
		n.cluster.SetNodes(ClusterAddresses(n.desired))
	}
	return n.applyEach(snapshot, keys, func(_ lb.ClusterNode, exists bool, _ string) error {
		if n.cluster == nil && exists {
			return errNoCluster
		}
		return nil
	})
}

// ClusterAddresses returns the addresses of the stored nodes, HOST:PORT each.
func ClusterAddresses(d *desired.State) (list []string) {
	for one := range d.ClusterNodes.All(d.Snapshot()) {
		list = append(list, one.Address)
	}
	return list
}

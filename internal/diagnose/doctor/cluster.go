package doctor

import (
	"fmt"
	"time"
)

// ClusterPeer is a node that does not get the connections of this one.
type ClusterPeer struct {
	Node, Why string
	Since     time.Time
}

// clusterPeers reports nodes through which the connections of this one would not continue, and that
// this node serves nobody because of them.
func clusterPeers(m *Machine) (out []Finding, err error) {
	if why := m.Facts.ClusterHeld; why != "" {
		out = append(out, Finding{
			About: "announcements", What: "VIPs are not announced: " + why, Sure: Certain,
			Why:     "this node serves nobody, so that connections of the others do not break here",
			Command: "loxicmd get cluster on both nodes; correct this node's flag, and restart it. If the other node is the wrong one, stop it",
		})
	}
	for _, p := range m.Facts.ClusterPeers {
		out = append(out, Finding{
			About: p.Node, What: fmt.Sprintf("node %s of the cluster: %s", p.Node, p.Why), Sure: Certain,
			Why:     "connections of this node do not go on through it",
			Command: "loxicmd get cluster on both nodes; let firewalls pass TCP port 22222 between them, and use the same --cluster-key and --hash-seed",
		})
	}
	return out, nil
}

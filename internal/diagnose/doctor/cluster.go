package doctor

import (
	"fmt"
	"strings"
	"time"
)

// ClusterPeer is a node that does not get the connections of this one, or has other services.
type ClusterPeer struct {
	Node, Why   string
	Since       time.Time
	Differing   int      // services; 0: it does not get the connections
	Differences []string // the first ones
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
	if list := m.Facts.ClusterProblems; len(list) > 0 {
		out = append(out, Finding{
			About: "this node", What: strings.Join(list, "; "), Sure: Certain,
			Why:     "the exchange of connections with other nodes ends, or does not begin again after a failure",
			Command: "correct the file or the name: files are read every second, names are looked up every 10 s",
		})
	}
	for _, p := range m.Facts.ClusterPeers {
		if p.Differing > 0 {
			out = append(out, otherServices(&p))
			continue
		}
		out = append(out, Finding{
			About: p.Node, What: fmt.Sprintf("node %s of the cluster: %s", p.Node, p.Why), Sure: Certain,
			Why:     "connections of this node would not continue through it",
			Command: remedy(p.Why),
		})
	}
	return out, nil
}

// remedy returns what to do about a node that is not connected.
func remedy(why string) string {
	switch {
	case strings.Contains(why, "--cluster-key"):
		return "sha256sum the files of --cluster-key on both nodes; while keys are replaced, both files have both keys, a line each"
	case strings.Contains(why, "cannot be resolved"):
		return "look the name up on this machine (getent ahosts NAME); correct the name or the resolver, or write addresses into --cluster"
	case strings.Contains(why, "is not in --cluster"):
		return "loxicmd create clusternode with the address of the node, or add it to --cluster"
	}
	return "loxicmd get cluster on both nodes; let firewalls pass TCP port 22222 between them, and use the same --cluster-key and --hash-seed"
}

// otherServices reports services of a node that differ from those of this one.
func otherServices(p *ClusterPeer) Finding {
	list := strings.Join(p.Differences, "; ")
	if more := p.Differing - len(p.Differences); more > 0 {
		list += fmt.Sprintf("; and %d more", more)
	}
	return Finding{
		About: p.Node, What: fmt.Sprintf("services of node %s differ from those of this one: %s", p.Node, list), Sure: Certain,
		Why:     "connections of a service go on only through nodes with the same service and endpoints",
		Command: "loxicmd get lb on both nodes; apply the same file to both, or keep services in one place for all nodes (--store)",
	}
}

package doctor

import (
	"fmt"
	"strings"
	"time"
)

// ClusterPeer is a node that does not get the connections of this node, or has other services.
type ClusterPeer struct {
	Node, Why   string
	Since       time.Time
	Differing   int      // number of differing services; 0: it does not get the connections
	Differences []string // the first ones
}

// clusterPeers reports nodes through which this node's connections would not continue, and that
// this node announces no VIPs because of them.
func clusterPeers(m *Machine) (out []Finding, err error) {
	if why := m.Facts.ClusterHeld; why != "" {
		out = append(out, Finding{
			About: "announcements", What: "VIPs are not announced: " + why, Sure: Certain,
			Why:     "this node serves nobody, so connections of other nodes do not break here",
			Command: "loxicmd get cluster on both nodes; correct this node's flag and restart it, or its files, which are read every second. If the other node is the wrong one, stop it",
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

// remedies are commands for a node that is not connected, by a part of the reason. The first match
// applies.
var remedies = []struct{ part, command string }{
	{"does not accept this node's certificate",
		"openssl verify -CAfile CA CERT, with the --cluster-ca of that node and the --cluster-cert of this one; with --cluster-key, sha256sum the files on both nodes"},
	{"--cluster-listen", "correct the address in --cluster, or start loxilb with --cluster there"},
	{"--cluster-key", "sha256sum the files of --cluster-key on both nodes; while keys are replaced, both files have both keys, a line each"},
	{"another authority than --cluster-ca", "write the certificates of both authorities into the file of --cluster-ca on each node, until all nodes have certificates of the new one"},
	{"not valid by this node's clock", "give that node a new certificate, and correct the clock that is wrong"},
	{"not for its own name", "give that node a certificate for its name, or the name of its certificate by --cluster-node"},
	{"both have --self", "start one of the two nodes with another --self"},
	{"both named", "start one of the two nodes with another --cluster-node"},
	{"--hash-seed", "use the same --hash-seed on all nodes, and restart the one that differs"},
	{"upgrade one version after the other", "upgrade the node with the older versions step by step"},
	{"use builds with the same", "install the same build of loxilb on both nodes"},
	{"cannot be resolved", "look the name up on this machine (getent ahosts NAME); correct the name or the resolver, or write addresses into --cluster"},
	{"it has left", "nothing if the node was removed for good: it is forgotten after a minute. Otherwise start loxilb there, and loxicmd create clusternode with its address here"},
	{"is not in --cluster", "loxicmd create clusternode with the address of the node, or add it to --cluster"},
	{"sends no connections to this node", "loxicmd get cluster at that node; add this node to its --cluster if it is not listed there"},
	{"connection refused", "start loxilb with --cluster there, or correct the address and the port (22222, or --cluster-listen) in --cluster; if the node was removed for good, loxicmd delete clusternode, or remove it from --cluster"},
}

// remedy returns what to do about a node that is not connected.
func remedy(why string) string {
	for _, r := range remedies {
		if strings.Contains(why, r.part) {
			return r.command
		}
	}
	return "loxicmd get cluster on both nodes; let firewalls pass TCP port 22222 between them, and use the same --cluster-key and --hash-seed. If the node was removed for good: loxicmd delete clusternode, or remove it from --cluster"
}

// otherServices reports services of a node that differ from this node's.
func otherServices(p *ClusterPeer) Finding {
	list := strings.Join(p.Differences, "; ")
	if more := p.Differing - len(p.Differences); more > 0 {
		list += fmt.Sprintf("; and %d more", more)
	}
	return Finding{
		About: p.Node, What: fmt.Sprintf("services of node %s differ from those of this one: %s", p.Node, list), Sure: Certain,
		Why:     "connections of a service continue only through nodes with the same service and endpoints",
		Command: "loxicmd get lb on both nodes; apply the same file to both, or keep services in one place for all nodes (--store)",
	}
}

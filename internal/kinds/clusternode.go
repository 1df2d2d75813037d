package kinds

import (
	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
)

// ClusterNodeName is the name of the kind in messages and journals.
const ClusterNodeName = "clusternode"

// ClusterNode registers nodes for the exchange of connections, in addition to --cluster.
func ClusterNode() *Kind[lb.ClusterNode, v1.ClusterAddress] {
	stored := asJSON(lb.ClusterNode.Key, lb.ClusterNode.Validate)
	stored.Max, stored.Plural, stored.Shared = lb.MaxClusterNodes, "cluster nodes", true
	return &Kind[lb.ClusterNode, v1.ClusterAddress]{
		Words: Words{
			Name: ClusterNodeName, Document: "ClusterNode", Command: "clusternode", Aliases: []string{"clusternodes"},
			List: "clusterNodeAttr", Exported: true, Verified: true,
		},
		Stored: stored,
		API: API[lb.ClusterNode, v1.ClusterAddress]{
			Path: "/config/clusternode", ObjectPath: "/address/{address}",
			Read: func(body *v1.ClusterAddress) (lb.ClusterNode, error) { return lb.ParseClusterNode(body.Address) },
			Show: func(n *lb.ClusterNode) *v1.ClusterAddress { return &v1.ClusterAddress{Address: n.Key()} },
		},
		CLI: CLI[v1.ClusterAddress]{
			Texts:   Texts{Singular: "a node of the cluster", Plural: "nodes of the cluster, in addition to --cluster", Argument: "ADDRESS", Sample: "10.0.0.2"},
			Name:    func(n *v1.ClusterAddress) string { return n.Address },
			Set:     func(n *v1.ClusterAddress, name string) { n.Address = name },
			Columns: []Column[*v1.ClusterAddress]{{Header: "Address", Cell: func(n *v1.ClusterAddress) string { return n.Address }}},
		},
	}
}

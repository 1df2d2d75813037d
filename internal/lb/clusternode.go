package lb

import "net"

// ClusterNode is another node with which this one exchanges connections.
type ClusterNode struct {
	Address string `json:"address"` // HOST:PORT, as ParseClusterNode returns it
}

// ClusterPort is the default TCP port of nodes of a cluster, as in the existing loxilb.
const ClusterPort = "22222"

// MaxClusterNodes is the highest number of other nodes.
const MaxClusterNodes = 64

// ParseClusterNode reads IP, HOST:PORT, [IPv6]:PORT or a DNS name.
func ParseClusterNode(s string) (ClusterNode, error) {
	address, err := ParseHostPort(s, ClusterPort)
	return ClusterNode{address}, err
}

// Validate checks a stored node.
func (n ClusterNode) Validate() error {
	_, err := ParseClusterNode(n.Address)
	return err
}

// Key returns the address without the default port.
func (n ClusterNode) Key() string {
	host, port, err := net.SplitHostPort(n.Address)
	if err != nil || port != ClusterPort {
		return n.Address
	}
	return host
}

package lb

import (
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// ClusterNode is another node with which this one exchanges connections.
type ClusterNode struct {
	Address string `json:"address"` // HOST:PORT, as ParseClusterNode returns it
}

// ClusterPort is the TCP port at which nodes of a cluster listen, that of the existing loxilb.
const ClusterPort = "22222"

// MostClusterNodes is how many nodes may be named.
const MostClusterNodes = 64

// hostName is a DNS name.
var hostName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9.])?$`)

// IsHostName reports whether s may be a DNS name.
func IsHostName(s string) bool { return hostName.MatchString(s) }

// ParseClusterNode reads IP, HOST:PORT, [IPv6]:PORT or a DNS name.
func ParseClusterNode(s string) (ClusterNode, error) {
	if a, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return clusterNodeAt(s, a.String(), ClusterPort)
	}
	host, port := s, ClusterPort
	if strings.Contains(s, ":") {
		var err error
		if host, port, err = net.SplitHostPort(s); err != nil {
			return ClusterNode{}, errClusterNode(s)
		}
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return ClusterNode{}, NewFieldError(FieldAddress, s, "has the port "+strconv.Quote(port), "1 to 65535")
	}
	return clusterNodeAt(s, host, port)
}

func errClusterNode(s string) error {
	return NewFieldError(FieldAddress, s, "is not IP, HOST:PORT, [IPv6]:PORT or a DNS name", "")
}

func clusterNodeAt(s, host, port string) (ClusterNode, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		if a.IsUnspecified() || a.IsMulticast() {
			return ClusterNode{}, NewFieldError(FieldAddress, s, "is not the address of a node", "")
		}
		host = a.String()
	} else if !IsHostName(host) {
		return ClusterNode{}, errClusterNode(s)
	}
	return ClusterNode{net.JoinHostPort(host, port)}, nil
}

// Validate checks a stored node.
func (n ClusterNode) Validate() error {
	_, err := ParseClusterNode(n.Address)
	return err
}

// Key returns what users call the node: without the usual port.
func (n ClusterNode) Key() string {
	host, port, err := net.SplitHostPort(n.Address)
	if err != nil || port != ClusterPort {
		return n.Address
	}
	return host
}

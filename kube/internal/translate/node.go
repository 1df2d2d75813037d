package translate

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

const (
	zoneLabel       = "loxilb.io/zonelabel"
	autoscalerTaint = "ToBeDeletedByClusterAutoscaler"
)

// Node has the properties of a node that Services depend on.
type Node struct {
	Name              string
	Addresses         []netip.Addr // internal addresses
	ExternalAddresses []netip.Addr
	PodCIDRs          []netip.Prefix
	Ready             bool
	ReadyChanged      time.Time // when Ready changed last
	Excluded          bool      // from load balancers by a label, or since it is about to be deleted
	Labels            map[string]string
}

// NodeOf converts a node. A cordoned node is not excluded: its pods still serve.
func NodeOf(n *corev1.Node) Node {
	out := Node{Name: n.Name, Labels: n.Labels}
	for _, a := range n.Status.Addresses {
		ip, err := netip.ParseAddr(a.Address)
		switch {
		case err != nil: // a host name
		case a.Type == corev1.NodeInternalIP:
			out.Addresses = append(out.Addresses, ip.Unmap())
		case a.Type == corev1.NodeExternalIP:
			out.ExternalAddresses = append(out.ExternalAddresses, ip.Unmap())
		}
	}
	for _, text := range n.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			out.PodCIDRs = append(out.PodCIDRs, p.Masked())
		}
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			out.Ready, out.ReadyChanged = c.Status == corev1.ConditionTrue, c.LastTransitionTime.Time
		}
	}
	_, out.Excluded = n.Labels[corev1.LabelNodeExcludeBalancers]
	out.Excluded = out.Excluded || n.DeletionTimestamp != nil ||
		slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == autoscalerTaint })
	return out
}

// Equal reports whether two states of a node are the same for Services.
func (n Node) Equal(other Node) bool {
	return n.Ready == other.Ready && n.ReadyChanged.Equal(other.ReadyChanged) && n.Excluded == other.Excluded && slices.Equal(n.Addresses, other.Addresses) &&
		slices.Equal(n.ExternalAddresses, other.ExternalAddresses) && slices.Equal(n.PodCIDRs, other.PodCIDRs) &&
		labels.Equals(n.Labels, other.Labels)
}

// settleTime is how long kube-proxy may need on a node that has become ready. Until then, its node
// ports refuse connections.
const settleTime = 10 * time.Second

// SettlesIn returns the rest of settleTime of a node that has just become ready; 0: the node is
// settled, or not ready.
func (n *Node) SettlesIn(now time.Time) time.Duration {
	age := now.Sub(n.ReadyChanged)
	if !n.Ready || age < 0 || age >= settleTime { // the node's clock may be ahead
		return 0
	}
	return settleTime - age
}

func (n *Node) address(ipv6 bool) netip.Addr {
	for _, a := range n.Addresses {
		if a.Is6() == ipv6 {
			return a
		}
	}
	return netip.Addr{}
}

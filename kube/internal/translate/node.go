package translate

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

const (
	zoneLabel      = "loxilb.io/zonelabel"
	autoscalerMark = "ToBeDeletedByClusterAutoscaler"
)

// Node is what matters of a node.
type Node struct {
	Name      string
	Addresses []netip.Addr // internal ones
	External  []netip.Addr
	Pods      []netip.Prefix
	Ready     bool
	Since     time.Time // time of the last change of Ready
	Excluded  bool      // from load balancers, or about to be deleted
	Labels    map[string]string
}

// NodeOf reads a node. Cordoned nodes stay: what runs there still serves.
func NodeOf(n *corev1.Node) Node {
	out := Node{Name: n.Name, Labels: n.Labels}
	for _, a := range n.Status.Addresses {
		ip, err := netip.ParseAddr(a.Address)
		switch {
		case err != nil: // a name
		case a.Type == corev1.NodeInternalIP:
			out.Addresses = append(out.Addresses, ip.Unmap())
		case a.Type == corev1.NodeExternalIP:
			out.External = append(out.External, ip.Unmap())
		}
	}
	for _, text := range n.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			out.Pods = append(out.Pods, p.Masked())
		}
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			out.Ready, out.Since = c.Status == corev1.ConditionTrue, c.LastTransitionTime.Time
		}
	}
	_, out.Excluded = n.Labels[corev1.LabelNodeExcludeBalancers]
	out.Excluded = out.Excluded || n.DeletionTimestamp != nil ||
		slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == autoscalerMark })
	return out
}

// Same reports whether nothing has changed that matters to Services.
func (n Node) Same(other Node) bool {
	return n.Ready == other.Ready && n.Since.Equal(other.Since) && n.Excluded == other.Excluded && slices.Equal(n.Addresses, other.Addresses) &&
		slices.Equal(n.External, other.External) && slices.Equal(n.Pods, other.Pods) &&
		labels.Equals(n.Labels, other.Labels)
}

// settleTime is how long kube-proxy may need on a node that has started. Node ports refuse until
// then, although the node is ready.
const settleTime = 10 * time.Second

// Settles returns how long a ready node needs until its node ports are used, next to others.
func (n *Node) Settles(now time.Time) time.Duration {
	since := now.Sub(n.Since)
	if !n.Ready || since < 0 || since >= settleTime { // clocks of nodes may be ahead
		return 0
	}
	return settleTime - since
}

func (n *Node) address(six bool) netip.Addr {
	for _, a := range n.Addresses {
		if a.Is6() == six {
			return a
		}
	}
	return netip.Addr{}
}

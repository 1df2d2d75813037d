package translate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"loxilb/kube/internal/annotation"
)

// preference selects the pods that a balancer prefers: those of its node, or of its zone.
type preference struct{ sameNode, sameZone bool }

// preferenceOf reads the annotation prefLocalPod and spec.trafficDistribution. Values of the latter
// have the same meaning as for kube-proxy: PreferSameNode falls back to the zone.
func preferenceOf(s *corev1.Service, a *annotation.Settings) preference {
	out := preference{sameNode: a.PreferNode}
	if d := s.Spec.TrafficDistribution; d != nil && hasOnlyPods(s, a) {
		switch *d {
		case corev1.ServiceTrafficDistributionPreferSameNode:
			out = preference{sameNode: true, sameZone: true}
		case corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferClose:
			out.sameZone = true
		}
	}
	return out
}

// hasOnlyPods reports whether all endpoints of a Service are pods.
func hasOnlyPods(s *corev1.Service, a *annotation.Settings) bool {
	return a.PodNetwork || a.External || !slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.NodePort != 0 })
}

// preferred returns a function that reports whether a balancer on a node prefers an endpoint to
// others, which are backups. It returns nil if all endpoints are equal.
func (in *Input) preferred(backends []backend, node string) func(backend) bool {
	if node == "" {
		return nil
	}
	want := preferenceOf(in.Service, &in.Settings)
	onNode := func(b backend) bool { return b.node == node }
	if want.sameNode && slices.ContainsFunc(backends, onNode) {
		return onNode
	}
	zone := in.zoneOf(node)
	inZone := func(b backend) bool { return b.zone == zone }
	if want.sameZone && zone != "" && slices.ContainsFunc(backends, inZone) {
		return inZone
	}
	return nil
}

func (in *Input) zoneOf(node string) string {
	for _, n := range in.nodesNamed(node) {
		return n.Labels[corev1.LabelTopologyZone]
	}
	return ""
}

// nodesNamed returns a slice of the node with a name, or an empty one.
func (in *Input) nodesNamed(name string) []Node {
	i, found := slices.BinarySearchFunc(in.Nodes, name, func(n Node, name string) int { return strings.Compare(n.Name, name) })
	if !found {
		return nil
	}
	return in.Nodes[i : i+1]
}

// EntriesOf returns the services for the balancers of nodes. Balancers with equal services share
// them: of hundreds of nodes, most have no pod, and a zone has many nodes.
func (in *Input) EntriesOf(nodes []string) (map[string][]Entry, error) {
	differs := in.differingNodes()
	out, shared := make(map[string][]Entry, len(nodes)), map[string][]Entry{}
	for _, node := range nodes {
		zone := in.zoneOf(node)
		entries, cached := shared[zone]
		if !cached || differs[node] {
			var err error
			if entries, err = in.Entries(node); err != nil {
				return nil, err
			}
		}
		if !differs[node] {
			shared[zone] = entries
		}
		out[node] = entries
	}
	return out, nil
}

// differingNodes returns the nodes whose balancers need other endpoints than the rest of their
// zone.
func (in *Input) differingNodes() map[string]bool {
	differs := map[string]bool{}
	if !in.isLocal() && !preferenceOf(in.Service, &in.Settings).sameNode {
		return differs
	}
	for _, slice := range in.Slices {
		for i := range slice.Endpoints {
			if node := slice.Endpoints[i].NodeName; node != nil {
				differs[*node] = true
			}
		}
	}
	return differs
}

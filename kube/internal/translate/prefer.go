package translate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"loxilb/kube/internal/annotation"
)

// nearby is how a Service prefers pods near the balancer.
type nearby struct{ node, zone bool }

// nearbyOf reads the annotation prefLocalPod and spec.trafficDistribution. Values of the latter
// have the same meaning as for kube-proxy: PreferSameNode falls back to the zone.
func nearbyOf(s *corev1.Service, a *annotation.Settings) nearby {
	out := nearby{node: a.PreferNode}
	if d := s.Spec.TrafficDistribution; d != nil && podsAlone(s, a) {
		switch *d {
		case corev1.ServiceTrafficDistributionPreferSameNode:
			out = nearby{node: true, zone: true}
		case corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferClose:
			out.zone = true
		}
	}
	return out
}

// podsAlone reports whether all endpoints of a Service are pods.
func podsAlone(s *corev1.Service, a *annotation.Settings) bool {
	return a.PodNetwork || a.External || !slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.NodePort != 0 })
}

// preferred returns which endpoints a balancer on a node prefers. Others are backups. It returns
// nil if all are equal.
func (in *Input) preferred(backends []backend, node string) func(backend) bool {
	if node == "" {
		return nil
	}
	want := nearbyOf(in.Service, &in.Settings)
	onNode := func(b backend) bool { return b.node == node }
	if want.node && slices.ContainsFunc(backends, onNode) {
		return onNode
	}
	zone := in.zoneOf(node)
	inZone := func(b backend) bool { return b.zone == zone }
	if want.zone && zone != "" && slices.ContainsFunc(backends, inZone) {
		return inZone
	}
	return nil
}

func (in *Input) zoneOf(node string) string {
	for _, n := range in.named(node) {
		return n.Labels[corev1.LabelTopologyZone]
	}
	return ""
}

// named returns the node with a name, or none.
func (in *Input) named(name string) []Node {
	i, found := slices.BinarySearchFunc(in.Nodes, name, func(n Node, name string) int { return strings.Compare(n.Name, name) })
	if !found {
		return nil
	}
	return in.Nodes[i : i+1]
}

// EntriesOf returns the services for the balancers of nodes. Balancers that have the same share
// them: of hundreds of nodes, most have no pod, and a zone has many.
func (in *Input) EntriesOf(nodes []string) (map[string][]Entry, error) {
	own := in.nodesWithOwn()
	out, shared := make(map[string][]Entry, len(nodes)), map[string][]Entry{}
	for _, node := range nodes {
		zone := in.zoneOf(node)
		entries, done := shared[zone]
		if !done || own[node] {
			var err error
			if entries, err = in.Entries(node); err != nil {
				return nil, err
			}
		}
		if !own[node] {
			shared[zone] = entries
		}
		out[node] = entries
	}
	return out, nil
}

// nodesWithOwn returns the nodes whose balancer has other endpoints than the rest of its zone.
func (in *Input) nodesWithOwn() map[string]bool {
	own := map[string]bool{}
	if !in.local() && !nearbyOf(in.Service, &in.Settings).node {
		return own
	}
	for _, slice := range in.Slices {
		for i := range slice.Endpoints {
			if node := slice.Endpoints[i].NodeName; node != nil {
				own[*node] = true
			}
		}
	}
	return own
}

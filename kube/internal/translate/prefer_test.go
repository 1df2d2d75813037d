package translate

import (
	"fmt"
	"net/netip"
	"reflect"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	v1 "loxilb/api/v1"
)

// large returns a Service with 1,000 pods on 50 of 200 nodes in three zones. Zone a has no pods.
func large(change func(*Input)) (in *Input, nodes []string) {
	in = input()
	in.Settings.PodNetwork, in.PerNode = true, true
	in.Nodes, in.Slices = nil, nil
	zone := func(i int) string { return string(rune('a' + i%3)) }
	for i := range 200 {
		nodes = append(nodes, fmt.Sprintf("n%03d", i))
		in.Nodes = append(in.Nodes, Node{Name: nodes[i], Ready: true, Labels: map[string]string{corev1.LabelTopologyZone: zone(i)}})
	}
	var pods []discoveryv1.Endpoint
	for i := range 1000 {
		n := i % 50
		if zone(n) == "a" {
			n++
		}
		p, podZone := pod(netip.AddrFrom4([4]byte{10, 244, byte(i / 250), byte(1 + i%250)}).String(), nodes[n], ready), zone(n)
		p.Zone = &podZone
		pods = append(pods, p)
	}
	for i := 0; i < len(pods); i += 100 { // as Kubernetes does
		in.Slices = append(in.Slices, slice(discoveryv1.AddressTypeIPv4, pods[i:i+100]...))
	}
	change(in)
	return in, nodes
}

// TestEntriesOf checks that each balancer of a large cluster gets the services for its node, and
// that shared services count once towards maxSize.
func TestEntriesOf(t *testing.T) {
	t.Parallel()
	distribution := func(how string) func(*Input) {
		return func(in *Input) { in.Service.Spec.TrafficDistribution = &how }
	}
	for name, change := range map[string]func(*Input){
		"zone":      distribution(corev1.ServiceTrafficDistributionPreferSameZone),
		"node":      distribution(corev1.ServiceTrafficDistributionPreferSameNode),
		"local pod": func(in *Input) { in.Settings.PreferNode = true },
		"announced": func(in *Input) {
			in.Service.Spec.ExternalTrafficPolicy, in.Settings.BGP = corev1.ServiceExternalTrafficPolicyLocal, true
		},
	} {
		in, nodes := large(change)
		if !NeedsNodes(in.Service, &in.Settings) {
			t.Fatalf("%s: all balancers have the same endpoints", name)
		}
		got, err := in.EntriesOf(nodes)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for i := 0; i < len(nodes); i += 7 {
			in.size = 0
			want, err := in.Entries(nodes[i])
			if err != nil || !reflect.DeepEqual(got[nodes[i]], want) {
				t.Errorf("%s: the balancer of %s has other services than its node needs (%v)", name, nodes[i], err)
			}
		}
	}
}

// TestLimitEndpoints checks that backups are removed first.
func TestLimitEndpoints(t *testing.T) {
	t.Parallel()
	var spec v1.LoadbalanceEntry
	for i := range MaxEndpoints + 3 {
		spec.Endpoints = append(spec.Endpoints, v1.Endpoint{TargetPort: i, Backup: 1})
	}
	spec.Endpoints[MaxEndpoints+1].Backup = 0
	if !limitEndpoints(&spec) || len(spec.Endpoints) != MaxEndpoints || spec.Endpoints[0].TargetPort != MaxEndpoints+1 || spec.Endpoints[1].TargetPort != 0 {
		t.Errorf("%d endpoints are left, beginning with %+v", len(spec.Endpoints), spec.Endpoints[:2])
	}
	if limitEndpoints(&spec) || len(spec.Endpoints) != MaxEndpoints {
		t.Errorf("%d endpoints of as many as allowed are left", len(spec.Endpoints))
	}
}

// TestCostOfNodes checks that the endpoints of a Service are read once for all balancers: the cost
// would otherwise grow with the square of the number of nodes. It runs alone, since it counts the
// bytes that the process allocates.
func TestCostOfNodes(t *testing.T) {
	in, nodes := large(func(in *Input) {
		in.Service.Spec.ExternalTrafficPolicy, in.Settings.BGP = corev1.ServiceExternalTrafficPolicyLocal, true
		in.Settings.PodNetwork = false
	})
	for i := range in.Nodes {
		in.Nodes[i].Addresses = []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})}
	}
	cost := func(balancers []string) uint64 {
		var before, after runtime.MemStats
		copied := *in
		runtime.ReadMemStats(&before)
		entries, err := copied.EntriesOf(balancers)
		runtime.ReadMemStats(&after)
		if err != nil || len(entries[nodes[1]]) != 2 {
			t.Fatalf("%d balancers: the one with pods has %d services (%v), want 2", len(balancers), len(entries[nodes[1]]), err)
		}
		return after.TotalAlloc - before.TotalAlloc
	}
	few, many := cost(nodes[:5]), cost(nodes[:50])
	if many > 2*few {
		t.Errorf("50 balancers cost %d bytes, and 5 of them %d", many, few)
	}
}

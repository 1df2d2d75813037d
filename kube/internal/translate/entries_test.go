package translate

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	v1 "loxilb/api/v1"
	"loxilb/kube/internal/annotation"
)

// input is a Service with two ports, pods on nodes n1 and n2, and three nodes.
func input() *Input {
	node := func(name, v4, v6 string) Node {
		return Node{Name: name, Ready: true, Addresses: []netip.Addr{netip.MustParseAddr(v4), netip.MustParseAddr(v6)}, Labels: map[string]string{"role": name}}
	}
	return &Input{
		Service: &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
			Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{
				{Name: "http", Port: 80, NodePort: 30080}, {Name: "dns", Port: 53, NodePort: 30053, Protocol: corev1.ProtocolUDP},
			}},
		},
		Slices: []*discoveryv1.EndpointSlice{
			slice(discoveryv1.AddressTypeIPv4, pod("10.244.1.1", "n1", ready), pod("10.244.2.1", "n2", ready), pod("10.244.2.2", "n2", starting), pod("10.244.3.1", "n3", terminating)),
			slice(discoveryv1.AddressTypeIPv6, pod("fd00::1", "n1", ready)),
		},
		Nodes: []Node{node("n1", "192.0.2.1", "2001:db8::1"), node("n2", "192.0.2.2", "2001:db8::2"), node("n3", "192.0.2.3", "2001:db8::3")},
		VIPs:  []netip.Addr{netip.MustParseAddr("20.0.0.1")}, Zone: "llb", Owner: "kube-1",
	}
}

const (
	ready = iota
	starting
	terminating
)

func pod(addr, node string, state int) discoveryv1.Endpoint {
	isReady, isServing, isTerminating := state == ready, state != starting, state == terminating
	return discoveryv1.Endpoint{
		Addresses: []string{addr}, NodeName: &node, TargetRef: &corev1.ObjectReference{Name: "pod-" + addr},
		Conditions: discoveryv1.EndpointConditions{Ready: &isReady, Serving: &isServing, Terminating: &isTerminating},
	}
}

func slice(family discoveryv1.AddressType, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	http, dns, tcp, udp, p1, p2 := "http", "dns", corev1.ProtocolTCP, corev1.ProtocolUDP, int32(8080), int32(5353)
	return &discoveryv1.EndpointSlice{AddressType: family, Endpoints: endpoints, Ports: []discoveryv1.EndpointPort{
		{Name: &http, Protocol: &tcp, Port: &p1}, {Name: &dns, Protocol: &udp, Port: &p2},
	}}
}

// distribute sets trafficDistribution, with n1 in zone a, and n2 and n3 in zone b.
func distribute(in *Input, how string) {
	in.Service.Spec.TrafficDistribution, in.PerNode = &how, true
	zones := []string{"a", "b", "b"}
	for i, zone := range zones {
		in.Nodes[i].Labels = map[string]string{corev1.LabelTopologyZone: zone}
	}
	for i := range in.Slices[0].Endpoints {
		e := &in.Slices[0].Endpoints[i]
		n := slices.IndexFunc(in.Nodes, func(n Node) bool { return n.Name == *e.NodeName })
		e.Zone = &zones[n]
	}
	if !NeedsNodes(in.Service, &in.Settings) {
		panic("all balancers have the same endpoints")
	}
}

// TestEndpoints checks the endpoints of the first port after a change of the input.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	local := func(in *Input) { in.Service.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal }
	pods := func(in *Input) { in.Settings.PodNetwork = true }
	for _, tc := range []struct {
		name, want string
		node       string
		change     func(*Input)
	}{
		{"node ports", "192.0.2.1:30080 192.0.2.2:30080 192.0.2.3:30080", "", func(*Input) {}},
		{"pods", "10.244.1.1:8080 10.244.2.1:8080", "", pods},
		{"no node port", "10.244.1.1:8080 10.244.2.1:8080", "", func(in *Input) { in.Service.Spec.Ports[0].NodePort = 0 }},
		{"Local", "192.0.2.1:30080 192.0.2.2:30080", "", local},
		{"Local, pods", "10.244.1.1:8080 10.244.2.1:8080", "n1", func(in *Input) { pods(in); local(in) }},
		{"Local, announced by nodes", "10.244.2.1:8080", "n2", func(in *Input) { pods(in); local(in); in.PerNode = true }},
		{"Local, announced by nodes, without pods on the node", "", "n3", func(in *Input) { pods(in); local(in); in.PerNode = true }},
		{"Local by node port, announced by nodes", "192.0.2.1:30080", "n1", func(in *Input) { local(in); in.PerNode = true }},
		{"node is preferred", "10.244.1.1:8080@1 10.244.2.1:8080", "n2", func(in *Input) { pods(in); in.Settings.PreferNode, in.PerNode = true, true }},
		{"no pod on the preferred node", "10.244.1.1:8080 10.244.2.1:8080", "n3", func(in *Input) { pods(in); in.Settings.PreferNode, in.PerNode = true, true }},
		{"distribution, same node", "10.244.1.1:8080@1 10.244.2.1:8080", "n2", func(in *Input) { pods(in); distribute(in, corev1.ServiceTrafficDistributionPreferSameNode) }},
		{
			"distribution, same node, falls back to the zone", "10.244.1.1:8080@1 10.244.2.1:8080", "n3",
			func(in *Input) { pods(in); distribute(in, corev1.ServiceTrafficDistributionPreferSameNode) },
		},
		{"distribution, same zone", "10.244.1.1:8080@1 10.244.2.1:8080", "n3", func(in *Input) { pods(in); distribute(in, corev1.ServiceTrafficDistributionPreferSameZone) }},
		{"distribution, no pod in the zone", "10.244.1.1:8080 10.244.2.1:8080", "n3", func(in *Input) {
			pods(in)
			distribute(in, corev1.ServiceTrafficDistributionPreferClose)
			in.Nodes[2].Labels[corev1.LabelTopologyZone] = "other"
		}},
		{"distribution, balancer of no node", "10.244.1.1:8080 10.244.2.1:8080", "", func(in *Input) { pods(in); distribute(in, corev1.ServiceTrafficDistributionPreferSameNode) }},
		{"only terminating pods serve", "10.244.3.1:8080", "", func(in *Input) {
			pods(in)
			in.Slices[0].Endpoints = in.Slices[0].Endpoints[2:]
		}},
		{"not ready, and published", "10.244.1.1:8080 10.244.2.1:8080 10.244.2.2:8080", "", func(in *Input) {
			pods(in)
			in.Service.Spec.PublishNotReadyAddresses = true
			in.Slices[0].Endpoints[2].Conditions.Ready = new(true) // as Kubernetes' own controller does
		}},
		{"conditions are unknown", "10.244.1.1:8080", "", func(in *Input) {
			pods(in)
			in.Slices[0].Endpoints = in.Slices[0].Endpoints[:1]
			in.Slices[0].Endpoints[0].Conditions = discoveryv1.EndpointConditions{}
		}},
		{"in two slices", "10.244.1.1:8080", "", func(in *Input) {
			pods(in)
			in.Slices = []*discoveryv1.EndpointSlice{slice(discoveryv1.AddressTypeIPv4, pod("10.244.1.1", "n1", ready)), slice(discoveryv1.AddressTypeIPv4, pod("10.244.1.1", "n1", ready))}
		}},
		{"excluded node", "192.0.2.2:30080 192.0.2.3:30080", "", func(in *Input) { in.Nodes[0].Excluded = true }},
		{"node is not ready", "192.0.2.2:30080 192.0.2.3:30080", "", func(in *Input) { in.Nodes[0].Ready = false }},
		{"node was just started", "192.0.2.2:30080 192.0.2.3:30080", "", func(in *Input) {
			in.Now = time.Now()
			in.Nodes[0].ReadyChanged = in.Now.Add(-settleTime / 2)
		}},
		{"nodes were just started, or are not ready", "192.0.2.1:30080 192.0.2.2:30080", "", func(in *Input) {
			in.Now = time.Now()
			in.Nodes[0].ReadyChanged, in.Nodes[1].ReadyChanged = in.Now, in.Now.Add(-settleTime/2)
			in.Nodes[2].Ready = false
		}},
		{"clocks of nodes differ", "192.0.2.1:30080 192.0.2.2:30080 192.0.2.3:30080", "", func(in *Input) {
			in.Now = time.Now()
			in.Nodes[0].ReadyChanged, in.Nodes[1].ReadyChanged = in.Now.Add(time.Hour), in.Now.Add(-settleTime)
		}},
		{"no node is ready", "192.0.2.1:30080 192.0.2.2:30080 192.0.2.3:30080", "", func(in *Input) {
			for i := range in.Nodes {
				in.Nodes[i].Ready = false
			}
		}},
		{"labelled nodes", "192.0.2.3:30080", "", func(in *Input) { in.Settings.Nodes = labels.SelectorFromSet(labels.Set{"role": "n3"}) }},
		{"node of another zone", "192.0.2.1:30080 192.0.2.2:30080", "", func(in *Input) { in.Nodes[2].Labels = map[string]string{zoneLabel: "other"} }},
		{"IPv6", "[2001:db8::1]:30080 [2001:db8::2]:30080 [2001:db8::3]:30080", "", func(in *Input) { in.VIPs = []netip.Addr{netip.MustParseAddr("2001:db8:1::1")} }},
		{"IPv6, pods", "[fd00::1]:8080", "", func(in *Input) { pods(in); in.VIPs = []netip.Addr{netip.MustParseAddr("2001:db8:1::1")} }},
		{"IPv6 to IPv4", "10.244.1.1:8080 10.244.2.1:8080", "", func(in *Input) {
			pods(in)
			in.VIPs, in.Settings.Family = []netip.Addr{netip.MustParseAddr("2001:db8:1::1")}, annotation.IPv6To4
		}},
		{"Multus", "172.16.0.1:8080", "", func(in *Input) {
			pods(in)
			in.Settings.Networks = []string{"shop/fast"}
			in.PodAddresses = map[string][]netip.Addr{"pod-10.244.1.1": {netip.MustParseAddr("172.16.0.1"), netip.MustParseAddr("fd00:16::1")}}
		}},
	} {
		in := input()
		tc.change(in)
		if entries, err := in.Entries(tc.node); tc.want == "" {
			if err != nil || slices.ContainsFunc(entries, func(e Entry) bool { return e.Port == 80 }) {
				t.Errorf("%s: without endpoints there are %v (%v)", tc.name, entries, err)
			}
			continue
		}
		if got := endpointsOf(first(t, in, tc.node)); got != tc.want {
			t.Errorf("%s: endpoints %q, want %q", tc.name, got, tc.want)
		}
	}
}

// TestNoEndpoints checks that a service without endpoints has an owner: balancers accept it only
// with one.
func TestNoEndpoints(t *testing.T) {
	t.Parallel()
	in := input()
	in.Settings.PodNetwork, in.Slices = true, nil
	in.PerNode = true
	for _, node := range []string{"", "n1"} {
		if spec := first(t, in, node); spec.Endpoints == nil || len(spec.Endpoints) != 0 || spec.ServiceArguments.Owner == "" {
			t.Errorf("without endpoints, the service is %+v", spec)
		}
	}
}

// TestNeedsNodes checks for which Services balancers on different nodes need different endpoints.
func TestNeedsNodes(t *testing.T) {
	t.Parallel()
	const local, cluster = corev1.ServiceExternalTrafficPolicyLocal, corev1.ServiceExternalTrafficPolicyCluster
	for _, tc := range []struct {
		policy      corev1.ServiceExternalTrafficPolicy
		bgp, prefer bool
		want        bool
	}{
		{cluster, false, false, false},
		{local, false, false, false},
		{cluster, true, false, false},
		{local, true, false, true},
		{cluster, false, true, true},
	} {
		s := &corev1.Service{Spec: corev1.ServiceSpec{ExternalTrafficPolicy: tc.policy}}
		if got := NeedsNodes(s, &annotation.Settings{BGP: tc.bgp, PreferNode: tc.prefer}); got != tc.want {
			t.Errorf("%+v: got %v", tc, got)
		}
	}
}

func first(t *testing.T, in *Input, node string) (spec v1.LoadbalanceEntry) {
	t.Helper()
	entries, err := in.Entries(node)
	if err != nil || len(entries) == 0 {
		t.Fatalf("got %v, %v, want entries", entries, err)
	}
	if err := json.Unmarshal(entries[0].Spec, &spec); err != nil {
		t.Fatal(err)
	}
	return spec
}

func endpointsOf(spec v1.LoadbalanceEntry) string {
	var list []string
	for _, e := range spec.Endpoints {
		text := netip.AddrPortFrom(netip.MustParseAddr(e.EndpointIP), uint16(e.TargetPort)).String()
		if e.Backup > 0 {
			text += fmt.Sprint("@", e.Backup)
		}
		list = append(list, text)
	}
	return strings.Join(list, " ")
}

// TestArguments checks settings of a balancer's service, as a part of its JSON.
func TestArguments(t *testing.T) {
	t.Parallel()
	seconds := int32(600)
	for _, tc := range []struct {
		name   string
		want   []string
		change func(*Input)
	}{
		{
			"plain",
			[]string{
				`"externalIP":"20.0.0.1"`, `"name":"shop_web:llb-inst0"`, `"owner":"kube-1"`, `"managed":true`,
				`"protocol":"tcp"`, `"inactiveTimeOut":1800`, `"sel":0`, `"monitor":false`,
			},
			func(*Input) {},
		},
		{"without liveness", []string{`"allDown":"panic"`}, func(*Input) {}},
		{"affinity", []string{`"sel":"persist"`, `"persistTimeout":600`}, func(in *Input) {
			in.Service.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
			in.Service.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
		}},
		{"sources", []string{`"allowedSources":[{"prefix":"10.0.0.0/8"}]`}, func(in *Input) {
			in.Service.Spec.LoadBalancerSourceRanges = []string{" 10.0.0.0/8", "2001:db8::/32"}
		}},
		{"sources of the other family", []string{`"deny":["0.0.0.0/0"]`}, func(in *Input) { in.Service.Spec.LoadBalancerSourceRanges = []string{"2001:db8::/32"} }},
		{"sources by annotation", []string{`"allowedSources":[{"prefix":"10.0.0.0/8"}]`}, func(in *Input) {
			in.Settings.SourceRanges = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
		}},
		{"secondary", []string{`"secondaryIPs":[{"secondaryIP":"20.0.0.2"}]`}, func(in *Input) { in.Secondary = []netip.Addr{netip.MustParseAddr("20.0.0.2")} }},
		{"health check of Local", []string{`"probetype":"http"`, `"probeport":31000`, `"monitor":true`}, func(in *Input) {
			in.Settings.Monitor = true
			in.Service.Spec.ExternalTrafficPolicy, in.Service.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, 31000
		}},
		{"instance of the VIP", []string{`"name":"shop_web:llb-inst1"`}, func(in *Input) { in.Instances, in.Settings.Instance = 4, annotation.InstanceOfVIP }},
		{"instance", []string{`"name":"shop_web:east-inst3"`}, func(in *Input) { in.Zone, in.Settings.Instance = "east", 3 }},
	} {
		in := input()
		tc.change(in)
		entries, err := in.Entries("")
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range tc.want {
			if !strings.Contains(string(entries[0].Spec), part) {
				t.Errorf("%s: no %s in %s", tc.name, part, entries[0].Spec)
			}
		}
	}
	entries, _ := input().Entries("")
	keys := []string{entries[0].Key, entries[1].Key}
	if len(entries) != 2 || !slices.Equal(keys, []string{"20.0.0.1:80/tcp", "20.0.0.1:53/udp"}) {
		t.Errorf("keys are %q", keys)
	}
}

// TestNames checks that ServiceOf reads the names that Name makes, and no others.
func TestNames(t *testing.T) {
	t.Parallel()
	if ns, name, ok := ServiceOf(Name("shop", "web-1", "llb", 2)); !ok || ns != "shop" || name != "web-1" {
		t.Errorf("a name is read as %q, %q", ns, name)
	}
	for _, foreign := range []string{"", "web", "_x", "x_", "web:llb-inst0"} {
		if _, _, ok := ServiceOf(foreign); ok {
			t.Errorf("%q is read as a Service's name", foreign)
		}
	}
}

// TestNodeOf checks which addresses a node has, and which nodes are excluded.
func TestNodeOf(t *testing.T) {
	t.Parallel()
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"a": "b"}}}
	n.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeExternalIP, Address: "1.1.1.1"},
		{Type: corev1.NodeInternalIP, Address: "192.0.2.1"},
		{Type: corev1.NodeInternalIP, Address: "2001:db8::1"},
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	got := NodeOf(&n)
	if !got.Ready || got.Excluded || len(got.Addresses) != 2 || got.address(true).String() != "2001:db8::1" {
		t.Errorf("a node is read as %+v", got)
	}
	n.Labels[corev1.LabelNodeExcludeBalancers] = ""
	if now := NodeOf(&n); !now.Excluded || now.Equal(got) {
		t.Error("the exclusion label has no effect")
	}
	delete(n.Labels, corev1.LabelNodeExcludeBalancers)
	n.Spec.Taints = []corev1.Taint{{Key: autoscalerTaint}}
	if !NodeOf(&n).Excluded {
		t.Error("a node that the autoscaler is deleting is not excluded")
	}
}

// TestDuplicateEndpoint checks that an endpoint in two slices counts as ready if either slice says
// so, in either order: Kubernetes moves endpoints between slices without a transaction.
func TestDuplicateEndpoint(t *testing.T) {
	t.Parallel()
	for _, states := range [][]int{{ready, terminating}, {terminating, ready}} {
		in := input()
		in.Settings.PodNetwork = true
		in.Slices = nil
		for _, state := range states {
			in.Slices = append(in.Slices, slice(discoveryv1.AddressTypeIPv4, pod("10.244.1.1", "n1", state)))
		}
		in.Slices = append(in.Slices, slice(discoveryv1.AddressTypeIPv4, pod("10.244.2.1", "n2", ready)))
		if got := in.endpoints(&in.Service.Spec.Ports[0], false, ""); len(got) != 2 {
			t.Errorf("states %v: endpoints are %v, want 10.244.1.1 and 10.244.2.1", states, got)
		}
	}
}

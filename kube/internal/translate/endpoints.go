package translate

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"

	v1 "loxilb/api/v1"
)

// backend is an endpoint of an EndpointSlice for one port.
type backend struct {
	addr       netip.Addr
	port       int32
	node, zone string
	pod        string
}

// portKey is a port of the Service and the IP family of its endpoints.
type portKey struct {
	port *corev1.ServicePort
	ipv6 bool
}

// portBackends has the endpoints of a port, also by node: reading all EndpointSlices for each of
// hundreds of balancers would take seconds.
type portBackends struct {
	all    []backend
	byNode map[string][]backend // nil until needed
}

// backends returns the endpoints of a port that accept connections, or only those on a node.
// Callers must not change them.
func (in *Input) backends(port *corev1.ServicePort, ipv6 bool, node string) []backend {
	key := portKey{port, ipv6}
	cached := in.backendCache[key]
	if cached == nil {
		cached = &portBackends{all: in.readBackends(port, ipv6)}
		if in.backendCache == nil {
			in.backendCache = map[portKey]*portBackends{}
		}
		in.backendCache[key] = cached
	}
	if node == "" {
		return cached.all
	}
	if cached.byNode == nil {
		cached.byNode = map[string][]backend{}
		for _, b := range cached.all {
			cached.byNode[b.node] = append(cached.byNode[b.node], b)
		}
	}
	return cached.byNode[node]
}

// readBackends returns the ready endpoints of a port. If there are none, it returns the terminating
// endpoints that still serve, like kube-proxy.
func (in *Input) readBackends(port *corev1.ServicePort, ipv6 bool) []backend {
	family := discoveryv1.AddressTypeIPv4
	if ipv6 {
		family = discoveryv1.AddressTypeIPv6
	}
	var ready, terminating []backend
	seen := map[netip.AddrPort]bool{} // true: as a ready endpoint
	for _, slice := range in.Slices {
		number, ok := targetPort(slice, port)
		if slice.AddressType != family || !ok {
			continue
		}
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			isReady := e.Conditions.Ready == nil || *e.Conditions.Ready
			isServing := e.Conditions.Serving != nil && *e.Conditions.Serving
			isTerminating := e.Conditions.Terminating != nil && *e.Conditions.Terminating
			if !isReady && !(isServing && isTerminating) || len(e.Addresses) == 0 {
				continue
			}
			addr, err := netip.ParseAddr(e.Addresses[0])
			if err != nil {
				continue
			}
			at := netip.AddrPortFrom(addr, uint16(number))
			if asReady, isDuplicate := seen[at]; isDuplicate && (asReady || !isReady) {
				continue
			}
			seen[at] = isReady
			b := backend{addr: addr, port: number}
			if e.NodeName != nil {
				b.node = *e.NodeName
			}
			if e.Zone != nil {
				b.zone = *e.Zone
			}
			if e.TargetRef != nil {
				b.pod = e.TargetRef.Name
			}
			if isReady {
				ready = append(ready, b)
			} else {
				terminating = append(terminating, b)
			}
		}
	}
	if len(ready) == 0 {
		ready = terminating
	}
	slices.SortFunc(ready, func(a, b backend) int {
		return cmp.Or(a.addr.Compare(b.addr), int(a.port-b.port))
	})
	return ready
}

// targetPort returns the port of a slice's endpoints for a port of the Service.
func targetPort(slice *discoveryv1.EndpointSlice, port *corev1.ServicePort) (int32, bool) {
	for _, p := range slice.Ports {
		name, protocol := "", corev1.ProtocolTCP
		if p.Name != nil {
			name = *p.Name
		}
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		if name == port.Name && protocol == cmp.Or(port.Protocol, corev1.ProtocolTCP) && p.Port != nil {
			return *p.Port, true
		}
	}
	return 0, false
}

// endpoints returns the endpoints of a port for the balancer of a node, or for any balancer.
func (in *Input) endpoints(port *corev1.ServicePort, ipv6 bool, node string) []v1.Endpoint {
	only := "" // the only node whose endpoints the balancer has
	if in.isLocal() && in.PerNode {
		only = node
	}
	backends := in.backends(port, ipv6, only)
	if !in.UsesPods(port) {
		return in.nodePorts(port, ipv6, backends, only)
	}
	if len(in.Settings.Networks) > 0 {
		backends = in.onNetworks(backends, ipv6)
	}
	preferred := in.preferred(backends, node)
	out := make([]v1.Endpoint, 0, len(backends))
	for _, b := range backends {
		e := endpoint(b.addr, b.port)
		if preferred != nil && !preferred(b) {
			e.Backup = 1
		}
		out = append(out, e)
	}
	return out
}

// UsesPods reports whether the endpoints of a port are pods: by request, or since the port has no
// node port.
func (in *Input) UsesPods(port *corev1.ServicePort) bool {
	return in.Settings.PodNetwork || in.Settings.External || port.NodePort == 0
}

func (in *Input) isLocal() bool {
	return in.Service.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// onNetworks replaces the addresses of pods by their addresses in Multus networks.
func (in *Input) onNetworks(backends []backend, ipv6 bool) (out []backend) {
	for _, b := range backends {
		for _, a := range in.PodAddresses[b.pod] {
			if a.Is6() == ipv6 {
				b.addr = a
				out = append(out, b)
			}
		}
	}
	return out
}

// nodePorts returns the node ports of all nodes, or of a single node. With the policy Local it
// omits nodes without an endpoint.
func (in *Input) nodePorts(port *corev1.ServicePort, ipv6 bool, backends []backend, only string) []v1.Endpoint {
	nodes, local := in.Nodes, in.isLocal()
	if only != "" {
		nodes = in.nodesNamed(only)
	}
	hasEndpoint := make(map[string]bool, len(nodes))
	for i := range backends {
		hasEndpoint[backends[i].node] = true
	}
	eligible := func(n *Node) bool {
		if zone := n.Labels[zoneLabel]; zone != "" && zone != in.Zone {
			return false
		}
		if in.Settings.Nodes != nil && !in.Settings.Nodes.Matches(labels.Set(n.Labels)) {
			return false
		}
		return !n.Excluded && n.address(ipv6).IsValid() && (!local || hasEndpoint[n.Name])
	}
	out := []v1.Endpoint{}
	// If no node is ready, their states are unreliable: use all of them rather than none.
	for _, usable := range []func(*Node) bool{
		func(n *Node) bool { return n.Ready && n.SettlesIn(in.Now) == 0 },
		func(n *Node) bool { return n.Ready },
		func(*Node) bool { return true },
	} {
		for i := range nodes {
			if n := &nodes[i]; eligible(n) && usable(n) {
				out = append(out, endpoint(n.address(ipv6), port.NodePort))
			}
		}
		if len(out) > 0 {
			break
		}
	}
	return out
}

func endpoint(a netip.Addr, port int32) v1.Endpoint {
	one := 1
	return v1.Endpoint{EndpointIP: a.String(), TargetPort: int(port), Weight: &one}
}

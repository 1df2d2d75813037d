package translate

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	v1 "loxilb/api/v1"
)

// backend is an endpoint of an EndpointSlice for one port.
type backend struct {
	addr        netip.Addr
	port        int32
	node, zone  string
	pod         string
	terminating bool
}

// portKey is a port of the Service and the IP family of its endpoints.
type portKey struct {
	port *corev1.ServicePort
	six  bool
}

// portBackends are the endpoints of a port. Each of hundreds of balancers needs those of its node:
// to read all EndpointSlices for each balancer would take seconds.
type portBackends struct {
	all    []backend
	byNode map[string][]backend // nil: not needed yet
}

// backends returns the endpoints of a port that accept connections, or only those on a node.
// Callers must not change them.
func (in *Input) backends(port *corev1.ServicePort, six bool, node string) []backend {
	key := portKey{port, six}
	known := in.known[key]
	if known == nil {
		known = &portBackends{all: in.readBackends(port, six)}
		if in.known == nil {
			in.known = map[portKey]*portBackends{}
		}
		in.known[key] = known
	}
	if node == "" {
		return known.all
	}
	if known.byNode == nil {
		known.byNode = map[string][]backend{}
		for _, b := range known.all {
			known.byNode[b.node] = append(known.byNode[b.node], b)
		}
	}
	return known.byNode[node]
}

// readBackends returns the ready endpoints of a port or, while there are none, terminating ones
// that still serve, like kube-proxy.
func (in *Input) readBackends(port *corev1.ServicePort, six bool) []backend {
	family := discoveryv1.AddressTypeIPv4
	if six {
		family = discoveryv1.AddressTypeIPv6
	}
	var ready, ending []backend
	seen := map[netip.AddrPort]bool{} // whether it is ready
	for _, slice := range in.Slices {
		number, ok := portOf(slice, port)
		if slice.AddressType != family || !ok {
			continue
		}
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			isReady := e.Conditions.Ready == nil || *e.Conditions.Ready
			serves := e.Conditions.Serving != nil && *e.Conditions.Serving
			ends := e.Conditions.Terminating != nil && *e.Conditions.Terminating
			if !isReady && !(serves && ends) || len(e.Addresses) == 0 {
				continue
			}
			addr, err := netip.ParseAddr(e.Addresses[0])
			if err != nil {
				continue
			}
			at := netip.AddrPortFrom(addr, uint16(number))
			if known, twice := seen[at]; twice && (known || !isReady) {
				continue
			}
			seen[at] = isReady
			b := backend{addr: addr, port: number, terminating: !isReady}
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
				ending = append(ending, b)
			}
		}
	}
	if len(ready) == 0 {
		ready = ending
	}
	slices.SortFunc(ready, func(a, b backend) int {
		return cmp.Or(a.addr.Compare(b.addr), int(a.port-b.port))
	})
	return ready
}

// portOf returns the number of a Service's port in a slice.
func portOf(slice *discoveryv1.EndpointSlice, port *corev1.ServicePort) (int32, bool) {
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
func (in *Input) endpoints(port *corev1.ServicePort, six bool, node string) []v1.Endpoint {
	only := "" // the balancer has the endpoints of this node alone
	if in.local() && in.PerNode {
		only = node
	}
	backends := in.backends(port, six, only)
	if !in.UsesPods(port) {
		return in.nodePorts(port, six, backends, only)
	}
	if len(in.Settings.Networks) > 0 {
		backends = in.onNetworks(backends, six)
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

// UsesPods reports whether endpoints of a port are pods, because this was requested, or because the
// Service has no node port.
func (in *Input) UsesPods(port *corev1.ServicePort) bool {
	return in.Settings.PodNetwork || in.Settings.External || port.NodePort == 0
}

func (in *Input) local() bool {
	return in.Service.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// onNetworks replaces the addresses of pods by their addresses in Multus networks.
func (in *Input) onNetworks(backends []backend, six bool) (out []backend) {
	for _, b := range backends {
		for _, a := range in.PodAddresses[b.pod] {
			if a.Is6() == six {
				b.addr = a
				out = append(out, b)
			}
		}
	}
	return out
}

// nodePorts returns the nodes of a port, or one of them. With the policy Local only those with an
// endpoint.
func (in *Input) nodePorts(port *corev1.ServicePort, six bool, backends []backend, only string) []v1.Endpoint {
	nodes, local := in.Nodes, in.local()
	if only != "" {
		nodes = in.named(only)
	}
	hosts := make(map[string]bool, len(nodes))
	for i := range backends {
		hosts[backends[i].node] = true
	}
	eligible := func(n *Node) bool {
		if zone := n.Labels[zoneLabel]; zone != "" && zone != in.Zone {
			return false
		}
		if in.Settings.Nodes != nil && !in.Settings.Nodes.Matches(set(n.Labels)) {
			return false
		}
		return !n.Excluded && n.address(six).IsValid() && (!local || hosts[n.Name])
	}
	out := []v1.Endpoint{}
	// While no node is ready, their state is unreliable: all of them are better than none.
	for _, good := range []func(*Node) bool{
		func(n *Node) bool { return n.Ready && n.Settles(in.Now) == 0 },
		func(n *Node) bool { return n.Ready },
		func(*Node) bool { return true },
	} {
		for i := range nodes {
			if n := &nodes[i]; eligible(n) && good(n) {
				out = append(out, endpoint(n.address(six), port.NodePort))
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

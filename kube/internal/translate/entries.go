// Package translate computes the services of balancers from a Service, its endpoints and the nodes.
// It does no I/O.
package translate

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	v1 "loxilb/api/v1"
	"loxilb/kube/internal/annotation"
)

// idleTCP is the idle timeout of TCP connections in seconds, unless an annotation sets it. The
// existing controller has the same default.
const idleTCP = 1800

// Input has everything that the balancers' services for a Service depend on.
type Input struct {
	Service      *corev1.Service
	Slices       []*discoveryv1.EndpointSlice
	Nodes        []Node // sorted by name
	Now          time.Time
	PodAddresses map[string][]netip.Addr // addresses in Settings.Networks, by pod
	Settings     annotation.Settings
	VIPs         []netip.Addr // one per family
	Secondary    []netip.Addr
	Zone         string
	Instances    int // number of instances, for annotation.InstanceOfVIP
	Owner        string
	PerNode      bool // as NeedsNodes returns it

	size           int // bytes of all entries so far
	backendCache   map[portKey]*portBackends
	servedAnywhere map[portKey]bool // caches whether a port has endpoints on any node
}

// Entry is one service of a balancer.
type Entry struct {
	Key       string // ADDRESS:PORT/PROTOCOL
	Address   netip.Addr
	Port      int32
	Protocol  corev1.Protocol
	Endpoints int  // 0: clients are refused
	Omitted   bool // endpoints beyond MaxEndpoints are missing
	Spec      json.RawMessage
	Hash      uint64 // of Spec, set by the fleet: comparing it is faster for hundreds of balancers
}

// NeedsNodes reports whether balancers on different nodes need different endpoints: those of a
// Service with the policy Local that each node announces by BGP, or those that prefer nearby pods.
func NeedsNodes(s *corev1.Service, a *annotation.Settings) bool {
	local := s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	return local && a.BGP || preferenceOf(s, a) != preference{}
}

// Name returns the name of a Service's services on balancers. The part after the colon is the
// instance: a balancer answers for their VIPs if it is MASTER of that instance.
func Name(namespace, name, zone string, instance int) string {
	return namespace + "_" + name + ":" + Instance(zone, instance)
}

// Instance returns the name of instance n of a zone.
func Instance(zone string, n int) string { return zone + "-inst" + strconv.Itoa(n) }

// instance returns the instance of a VIP. With annotation.InstanceOfVIP it depends only on the
// address, so Services that share a VIP agree; consecutive addresses have consecutive instances.
func (in *Input) instance(vip netip.Addr) int {
	if in.Settings.Instance != annotation.InstanceOfVIP {
		return in.Settings.Instance
	}
	bytes := vip.As16()
	return int(binary.BigEndian.Uint32(bytes[12:]) % uint32(max(1, in.Instances)))
}

// ServiceOf returns the Service from which Name made a name.
func ServiceOf(name string) (namespace, service string, ok bool) {
	name, _, _ = strings.Cut(name, ":")
	namespace, service, ok = strings.Cut(name, "_")
	return namespace, service, ok && namespace != "" && service != ""
}

// Entries returns the services for the balancer of a node; node "" is any balancer. A port without
// endpoints on any node has a service that refuses clients.
func (in *Input) Entries(node string) ([]Entry, error) {
	var out []Entry
	for i, vip := range in.VIPs {
		for j := range in.Service.Spec.Ports {
			port := &in.Service.Spec.Ports[j]
			spec := v1.LoadbalanceEntry{
				ServiceArguments: in.arguments(vip, port),
				Endpoints:        in.endpoints(port, in.endpointsAreIPv6(vip), node),
			}
			if len(spec.Endpoints) == 0 && in.isServedElsewhere(port, vip, node) {
				continue // so clients go to balancers with endpoints
			}
			omitted := limitEndpoints(&spec)
			if i == 0 {
				for _, s := range in.Secondary {
					spec.SecondaryIPs = append(spec.SecondaryIPs, v1.SecondaryIP{SecondaryIP: s.String()})
				}
			}
			in.setSources(&spec, vip)
			data, err := json.Marshal(spec)
			if err = errors.Join(err, in.addSize(len(data))); err != nil {
				return nil, err
			}
			out = append(out, Entry{Key: KeyOf(vip, port.Port, port.Protocol), Address: vip, Port: port.Port, Protocol: port.Protocol, Endpoints: len(spec.Endpoints), Omitted: omitted, Spec: data})
		}
	}
	return out, nil
}

// isServedElsewhere reports whether a port without endpoints on a node has endpoints on others.
func (in *Input) isServedElsewhere(port *corev1.ServicePort, vip netip.Addr, node string) bool {
	if !in.PerNode || node == "" {
		return false
	}
	key := portKey{port, in.endpointsAreIPv6(vip)}
	served, cached := in.servedAnywhere[key]
	if !cached {
		if in.servedAnywhere == nil {
			in.servedAnywhere = map[portKey]bool{}
		}
		served = len(in.endpoints(port, key.ipv6, "")) > 0
		in.servedAnywhere[key] = served
	}
	return served
}

// KeyOf returns the key of a balancer's service.
func KeyOf(vip netip.Addr, port int32, protocol corev1.Protocol) string {
	return fmt.Sprintf("%s/%s", net.JoinHostPort(vip.String(), strconv.Itoa(int(port))), protocolName(protocol))
}

func protocolName(p corev1.Protocol) string {
	if p == "" {
		p = corev1.ProtocolTCP
	}
	return strings.ToLower(string(p))
}

func (in *Input) endpointsAreIPv6(vip netip.Addr) bool {
	return vip.Is6() && in.Settings.Family != annotation.IPv6To4
}

func (in *Input) arguments(vip netip.Addr, port *corev1.ServicePort) v1.ServiceArguments {
	s := &in.Settings
	out := v1.ServiceArguments{
		ExternalIP: vip.String(), Port: int(port.Port), Protocol: protocolName(port.Protocol),
		Name:  Name(in.Service.Namespace, in.Service.Name, in.Zone, in.instance(vip)),
		Owner: in.Owner, Managed: true,
		Mode: v1.Choice(s.Mode), Sel: v1.Choice(s.Select),
		Bgp: s.BGP, Egress: s.Egress, Proxyprotocolv2: s.ProxyProtocol,
		InactiveTimeOut: v1.Seconds(s.IdleTimeout.Seconds()),
	}
	if s.IdleTimeout == 0 && protocolName(port.Protocol) == "tcp" {
		out.InactiveTimeOut = idleTCP
	}
	if in.Service.Spec.SessionAffinity == corev1.ServiceAffinityClientIP && (s.Select == "" || s.Select == "persist") {
		out.Sel = "persist"
		if c := in.Service.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
			out.PersistTimeout = v1.Seconds(*c.ClientIP.TimeoutSeconds)
		}
	}
	in.setProbe(&out, port)
	return out
}

// setProbe sets how the balancer probes endpoints. With the policy Local it probes the Service's
// health check on nodes, which reports whether the node has a ready pod.
//
// Without the annotation liveness, some modes of the balancer probe nevertheless. A probe of a node
// port may reach a dead pod on another node, so after the death of a node all nodes may seem down.
// Kubernetes knows better which endpoints are ready: AllDown then lets all of them get connections.
func (in *Input) setProbe(out *v1.ServiceArguments, port *corev1.ServicePort) {
	s := &in.Settings
	if !s.Monitor {
		out.AllDown = "panic"
		if s.ProbeType == "none" {
			out.Probetype = "none" // also with modes that probe by default
		}
		return
	}
	out.Monitor = true
	out.Probetype, out.Probeport = s.ProbeType, s.ProbePort
	out.Probereq, out.Proberesp = s.ProbeRequest, s.ProbeResponse
	out.ProbeTimeout, out.ProbeRetries = v1.Seconds(s.ProbePeriod.Seconds()), s.ProbeRetries
	if check := in.Service.Spec.HealthCheckNodePort; check != 0 && in.isLocal() && !in.UsesPods(port) && s.ProbeType == "" && s.ProbePort == 0 {
		out.Probetype, out.Probeport, out.Probereq = "http", int(check), "/healthz"
	}
}

// setSources sets the clients that may connect. If all ranges are of the other family, it refuses
// all clients of this one.
func (in *Input) setSources(spec *v1.LoadbalanceEntry, vip netip.Addr) {
	ranges := slices.Clone(in.Settings.SourceRanges)
	if len(in.Service.Spec.LoadBalancerSourceRanges) > 0 {
		ranges = nil
		for _, r := range in.Service.Spec.LoadBalancerSourceRanges {
			if p, err := netip.ParsePrefix(strings.TrimSpace(r)); err == nil {
				ranges = append(ranges, p.Masked())
			}
		}
	}
	for _, p := range ranges {
		if p.Addr().Is4() == vip.Is4() {
			spec.AllowedSources = append(spec.AllowedSources, v1.AllowedSource{Prefix: p.String()})
		}
	}
	if len(ranges) > 0 && len(spec.AllowedSources) == 0 {
		spec.ServiceArguments.Deny = []string{"0.0.0.0/0"}
		if vip.Is6() {
			spec.ServiceArguments.Deny = []string{"::/0"}
		}
	}
}

// Package translate turns a Service, its endpoints and nodes into services of a balancer. It is
// pure.
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
	"k8s.io/apimachinery/pkg/labels"

	v1 "loxilb/api/v1"
	"loxilb/kube/internal/annotation"
)

// idleTCP is the idle timeout of TCP connections without an annotation, as the existing controller
// has it.
const idleTCP = 1800

// Input is all that the services of a balancer depend on.
type Input struct {
	Service      *corev1.Service
	Slices       []*discoveryv1.EndpointSlice
	Nodes        []Node // in the order of names
	Now          time.Time
	PodAddresses map[string][]netip.Addr // of pods by name, in the networks of Settings
	Settings     annotation.Settings
	VIPs         []netip.Addr // one per family
	Secondary    []netip.Addr
	Zone         string
	Instances    int // over which VIPs are spread, for annotation.InstanceOfVIP
	Owner        string
	PerNode      bool // balancers on nodes have their own endpoints: see NeedsNodes

	size     int // of all entries so far
	known    map[portKey]*portBackends
	anywhere map[portKey]bool // ports that have endpoints on some node
}

// Entry is one service of a balancer.
type Entry struct {
	Key       string // ADDRESS:PORT/PROTOCOL
	Address   netip.Addr
	Port      int32
	Protocol  corev1.Protocol
	Endpoints int  // 0: clients are refused
	Omitted   bool // it lacks endpoints beyond MaxEndpoints
	Spec      json.RawMessage
	Hash      uint64 // of Spec, set by the fleet: hundreds of balancers compare it
}

func set(m map[string]string) labels.Set { return m }

// NeedsNodes reports whether balancers on different nodes have different endpoints: if they
// announce a Service with the policy Local by themselves, or prefer pods nearby.
func NeedsNodes(s *corev1.Service, a *annotation.Settings) bool {
	local := s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	return local && a.BGP || nearbyOf(s, a) != nearby{}
}

// Name returns the name that a balancer's services have. Its part after the colon is the instance
// whose role decides about their VIPs.
func Name(namespace, name, zone string, instance int) string {
	return namespace + "_" + name + ":" + Instance(zone, instance)
}

// Instance returns the name of an instance.
func Instance(zone string, n int) string { return zone + "-inst" + strconv.Itoa(n) }

// instance returns the instance of a VIP. Services that share a VIP have the same, and successive
// addresses successive ones.
func (in *Input) instance(vip netip.Addr) int {
	if in.Settings.Instance != annotation.InstanceOfVIP {
		return in.Settings.Instance
	}
	bytes := vip.As16()
	return int(binary.BigEndian.Uint32(bytes[12:]) % uint32(max(1, in.Instances)))
}

// ServiceOf returns the Service that a name belongs to.
func ServiceOf(name string) (namespace, service string, ok bool) {
	name, _, _ = strings.Cut(name, ":")
	namespace, service, ok = strings.Cut(name, "_")
	return namespace, service, ok && namespace != "" && service != ""
}

// Entries returns the services for the balancer of a node, or for any balancer. Ports without an
// endpoint anywhere have services that refuse clients.
func (in *Input) Entries(node string) ([]Entry, error) {
	var out []Entry
	for i, vip := range in.VIPs {
		for j := range in.Service.Spec.Ports {
			port := &in.Service.Spec.Ports[j]
			spec := v1.LoadbalanceEntry{
				ServiceArguments: in.arguments(vip, port),
				Endpoints:        in.endpoints(port, in.endpointsAreIPv6(vip), node),
			}
			if len(spec.Endpoints) == 0 && in.elsewhere(port, vip, node) {
				continue // only balancers with endpoints serve it
			}
			omitted := limit(&spec)
			if i == 0 {
				for _, s := range in.Secondary {
					spec.SecondaryIPs = append(spec.SecondaryIPs, v1.SecondaryIP{SecondaryIP: s.String()})
				}
			}
			in.sources(&spec, vip)
			data, err := json.Marshal(spec)
			if err = errors.Join(err, in.count(len(data))); err != nil {
				return nil, err
			}
			out = append(out, Entry{Key: KeyOf(vip, port.Port, port.Protocol), Address: vip, Port: port.Port, Protocol: port.Protocol, Endpoints: len(spec.Endpoints), Omitted: omitted, Spec: data})
		}
	}
	return out, nil
}

// elsewhere reports whether a port without endpoints on a node has some on others.
func (in *Input) elsewhere(port *corev1.ServicePort, vip netip.Addr, node string) bool {
	if !in.PerNode || node == "" {
		return false
	}
	key := portKey{port, in.endpointsAreIPv6(vip)}
	some, known := in.anywhere[key]
	if !known {
		if in.anywhere == nil {
			in.anywhere = map[portKey]bool{}
		}
		some = len(in.endpoints(port, key.six, "")) > 0
		in.anywhere[key] = some
	}
	return some
}

// KeyOf returns the key of a balancer's service.
func KeyOf(vip netip.Addr, port int32, protocol corev1.Protocol) string {
	return fmt.Sprintf("%s/%s", net.JoinHostPort(vip.String(), strconv.Itoa(int(port))), word(protocol))
}

func word(p corev1.Protocol) string {
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
		ExternalIP: vip.String(), Port: int(port.Port), Protocol: word(port.Protocol),
		Name:  Name(in.Service.Namespace, in.Service.Name, in.Zone, in.instance(vip)),
		Owner: in.Owner, Managed: true,
		Mode: v1.Choice(s.Mode), Sel: v1.Choice(s.Select),
		Bgp: s.BGP, Egress: s.Egress, Proxyprotocolv2: s.ProxyProtocol,
		InactiveTimeOut: v1.Seconds(s.IdleTimeout.Seconds()),
	}
	if s.IdleTimeout == 0 && word(port.Protocol) == "tcp" {
		out.InactiveTimeOut = idleTCP
	}
	if in.Service.Spec.SessionAffinity == corev1.ServiceAffinityClientIP && (s.Select == "" || s.Select == "persist") {
		out.Sel = "persist"
		if c := in.Service.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
			out.PersistTimeout = v1.Seconds(*c.ClientIP.TimeoutSeconds)
		}
	}
	in.probe(&out, port)
	return out
}

// probe sets how endpoints are probed. Nodes of a Service with the policy Local are asked for their
// health check of it, which knows whether a pod is ready there.
//
// Some modes probe by themselves. Kubernetes knows better which endpoints are ready: a probe of a
// node port may reach a dead pod on any other node, so after the death of a node all nodes may look
// down. In that case they all get connections.
func (in *Input) probe(out *v1.ServiceArguments, port *corev1.ServicePort) {
	s := &in.Settings
	if !s.Monitor {
		out.AllDown = "panic"
		if s.ProbeType == "none" {
			out.Probetype = "none" // some modes probe by themselves
		}
		return
	}
	out.Monitor = true
	out.Probetype, out.Probeport = s.ProbeType, s.ProbePort
	out.Probereq, out.Proberesp = s.ProbeRequest, s.ProbeResponse
	out.ProbeTimeout, out.ProbeRetries = v1.Seconds(s.ProbePeriod.Seconds()), s.ProbeRetries
	if check := in.Service.Spec.HealthCheckNodePort; check != 0 && in.local() && !in.UsesPods(port) && s.ProbeType == "" && s.ProbePort == 0 {
		out.Probetype, out.Probeport, out.Probereq = "http", int(check), "/healthz"
	}
}

// sources sets the allowed clients. If all ranges are of the other family, no client of this family
// is allowed.
func (in *Input) sources(spec *v1.LoadbalanceEntry, vip netip.Addr) {
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

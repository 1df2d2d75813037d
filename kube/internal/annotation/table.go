package annotation

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

// Prefix starts the names of our own annotations, and of the existing controller's.
const Prefix = "loxilb.io/"

// ZoneSelect is the annotation that selects the zone of the controller.
const ZoneSelect = Prefix + "zoneselect"

// Annotation describes an annotation of Services. All is also the source of the documents.
type Annotation struct {
	Name        string
	Also        []string // names that other controllers use for it
	Values      string
	Effect      string
	set         func(s *Settings, namespace, value string) error
	Unavailable string // why the annotation is refused; empty: it is available
}

// HostMode is the mode of services that take their ports from each address of the machine.
const HostMode = "hostonearm"

const (
	yesNo        = "`yes`, `no`"
	maxProbeText = 1024 // the limit of balancers
)

// All returns the annotations in the order of the documents. Of two annotations for one setting,
// the later one wins.
func All() []Annotation {
	return slices.Concat(addressAnnotations(), endpointAnnotations(), trafficAnnotations(), probeAnnotations(), tlsAnnotations())
}

func addressAnnotations() []Annotation {
	return []Annotation{
		{
			Name: Prefix + "staticIP", Also: []string{"metallb.io/loadBalancerIPs", "metallb.universe.tf/loadBalancerIPs", "lbipam.cilium.io/ips", "io.cilium/lb-ipam-ips", "kube-vip.io/loadbalancerIPs"},
			Values: "address, or one of each family with a comma", Effect: "use these VIPs, of no pool or of one for this Service",
			set: func(s *Settings, _, v string) (err error) {
				s.Addresses, err = parseAddresses(v, 2)
				if err == nil && len(s.Addresses) == 2 && s.Addresses[0].Is4() == s.Addresses[1].Is4() {
					err = fmt.Errorf("has two addresses of one family: put additional ones into %ssecondaryIPs", Prefix)
				}
				return err
			},
		},
		{
			Name: Prefix + "poolSelect", Also: []string{"metallb.io/address-pool", "metallb.universe.tf/address-pool"},
			Values: "name of a pool", Effect: "allocate VIPs from this pool",
			set: func(s *Settings, _, v string) error { return setText(&s.Pool, v) },
		},
		{
			Name: Prefix + "sharingKey", Also: []string{"metallb.io/allow-shared-ip", "metallb.universe.tf/allow-shared-ip", "lbipam.cilium.io/sharing-key", "io.cilium/lb-ipam-sharing-key"},
			Values: "any text", Effect: "share VIPs with Services that have the same key and other ports",
			set: func(s *Settings, _, v string) error { return setText(&s.SharingKey, v) },
		},
		{
			Name: Prefix + "secondaryIPs", Values: "up to 3 addresses", Effect: "additional VIPs of the first VIP's family",
			set: func(s *Settings, _, v string) (err error) {
				s.SecondaryAddresses, err = parseAddresses(v, 3)
				return err
			},
		},
		{
			Name: Prefix + "poolSelectSecondary", Values: "up to 3 names of pools", Effect: "allocate an additional VIP from each pool, unless `secondaryIPs` is set",
			set: func(s *Settings, _, v string) (err error) {
				s.SecondaryPools, err = parseList(v, 3)
				return err
			},
		},
		{
			Name: Prefix + "ipam", Values: "`ipv4`, `ipv6`, `ipv6to4`; `nat66` is ipv6, `nat64` is ipv6to4", Effect: "IP version of VIP and endpoints; default: `ipFamilies` of the Service",
			set: func(s *Settings, _, v string) error {
				word := map[string]Family{"ipv4": IPv4, "ipv6": IPv6, "nat66": IPv6, "ipv6to4": IPv6To4, "nat64": IPv6To4}[v]
				if word == "" {
					return notOneOf("ipv4, ipv6, ipv6to4, nat66 or nat64")
				}
				s.Family = word
				return nil
			},
		},
		{
			Name: ZoneSelect, Values: "zone", Effect: "only the controller with this `--zone` handles the Service",
			set: func(_ *Settings, _, v string) error { return setText(new(string), v) }, // read by the controller itself
		},
		{
			Name: Prefix + "zoneinstance", Values: "number, or `ZONE-instN`", Effect: "instance whose MASTER has the VIPs ([ha.md](ha.md))",
			set: func(s *Settings, _, v string) error {
				if i := strings.LastIndex(v, "-inst"); i >= 0 {
					v = v[i+len("-inst"):]
				}
				return setNumber(&s.Instance, v, 0, 31)
			},
		},
	}
}

func endpointAnnotations() []Annotation {
	return []Annotation{
		{
			Name: Prefix + "usepodnetwork", Values: yesNo, Effect: "endpoints are pods, not node ports; default: `--usePodNetwork`",
			set: func(s *Settings, _, v string) error { return setBool(&s.PodNetwork, v) },
		},
		{
			Name: Prefix + "useExternalEndpoint", Values: yesNo, Effect: "endpoints are those of EndpointSlices or Endpoints that users maintain for the Service",
			set: func(s *Settings, _, v string) error { return setBool(&s.External, v) },
		},
		{
			Name: Prefix + "prefLocalPod", Values: yesNo, Effect: "with pods as endpoints: a balancer prefers the pods of its node",
			set: func(s *Settings, _, v string) error { return setBool(&s.PreferNode, v) },
		},
		{
			Name: Prefix + "nodelabel", Values: "label selector, such as `role=edge` or `edge`", Effect: "only matching nodes are endpoints",
			set: func(s *Settings, _, v string) (err error) {
				if s.Nodes, err = labels.Parse(v); err != nil || v == "" {
					return fmt.Errorf("is not a label selector such as role=edge")
				}
				return nil
			},
		},
		{
			Name: Prefix + "multus-nets", Values: "networks, such as `net1,ns/net2`", Effect: "endpoints are the pods' addresses in these Multus networks",
			set: func(s *Settings, namespace, v string) (err error) {
				s.Networks, err = parseList(v, 16)
				for i, n := range s.Networks {
					if !strings.Contains(n, "/") {
						s.Networks[i] = namespace + "/" + n
					}
				}
				return err
			},
		},
	}
}

func trafficAnnotations() []Annotation {
	return []Annotation{
		{
			Name: Prefix + "lbmode", Values: "`default`, `onearm`, `fullnat`, `dsr`, `hostonearm` unless `--deny-hostonearm`, `auto`; `fullproxy` is not available", Effect: "how to translate packets ([modes.md](modes.md)); default: `--setLBMode`",
			set: func(s *Settings, _, v string) (err error) {
				s.Mode, err = Mode(v)
				return err
			},
		},
		{
			Name: Prefix + "epselect", Values: "`rr`, `roundrobin`, `hash`, `persist`, `lc`, `priority`, `random`, `quic`, `n3`; `n2`, `n2det` are not available", Effect: "how to choose an endpoint ([algorithms.md](algorithms.md)); `quic` and `n3` need balancers that support them; default: `persist` with `sessionAffinity`, otherwise rr",
			set: func(s *Settings, _, v string) error {
				switch v {
				case "roundrobin":
					v = "rr"
				case "rr", "hash", "persist", "lc", "priority", "random", "quic", "n3":
				case "n2", "n2det":
					return fmt.Errorf("is not available: loxilb does not read NGAP messages, so balance their associations by persist")
				default:
					return notOneOf("rr, roundrobin, hash, persist, lc, priority, random, quic or n3")
				}
				s.Select = v
				return nil
			},
		},
		{
			Name: Prefix + "timeout", Values: "seconds, up to 86400", Effect: "idle timeout of connections; default: 1800 for TCP",
			set: func(s *Settings, _, v string) error { return setSeconds(&s.IdleTimeout, v) },
		},
		{
			Name: Prefix + "useproxyprotov2", Values: yesNo, Effect: "send endpoints the client's address in front of its data ([PROXY protocol](proxy-protocol.md))",
			set: func(s *Settings, _, v string) error { return setBool(&s.ProxyProtocol, v) },
		},
		{
			Name: Prefix + "egress", Values: yesNo, Effect: "connections that endpoints open leave with the VIP as source",
			set: func(s *Settings, _, v string) error { return setBool(&s.Egress, v) },
		},
		{
			Name: "service.beta.kubernetes.io/load-balancer-source-ranges", Values: "prefixes", Effect: "like `loadBalancerSourceRanges` of the Service",
			set: func(s *Settings, _, v string) (err error) {
				s.SourceRanges, err = parsePrefixes(v)
				return err
			},
		},
	}
}

func probeAnnotations() []Annotation {
	return []Annotation{
		{
			Name: Prefix + "liveness", Values: yesNo, Effect: "probe endpoints; default: `--monitor`",
			set: func(s *Settings, _, v string) error { return setBool(&s.Monitor, v) },
		},
		{
			Name: Prefix + "probetype", Values: "`tcp`, `udp`, `ping`, `http`, `https`, `grpc`, `dns`, `none`; `sctp` if the balancer supports it", Effect: "what to probe ([probes.md](probes.md)); default: by the protocol",
			set: func(s *Settings, _, v string) error {
				if !slices.Contains([]string{"tcp", "udp", "ping", "http", "https", "grpc", "dns", "none", "sctp"}, v) {
					return notOneOf("tcp, udp, ping, http, https, grpc, dns, none or sctp")
				}
				s.ProbeType = v
				return nil
			},
		},
		{
			Name: Prefix + "probeport", Values: "port", Effect: "default: the endpoint's",
			set: func(s *Settings, _, v string) error { return setNumber(&s.ProbePort, v, 0, 65535) },
		},
		{
			Name: Prefix + "probereq", Values: "text, up to 1024 bytes", Effect: "path, name or bytes to request",
			set: func(s *Settings, _, v string) error { return setProbeText(&s.ProbeRequest, v) },
		},
		{
			Name: Prefix + "proberesp", Values: "text, up to 1024 bytes", Effect: "text that answers must contain",
			set: func(s *Settings, _, v string) error { return setProbeText(&s.ProbeResponse, v) },
		},
		{
			Name: Prefix + "probetimeout", Values: "seconds, up to 86400", Effect: "interval between probes",
			set: func(s *Settings, _, v string) error { return setSeconds(&s.ProbePeriod, v) },
		},
		{
			Name: Prefix + "proberetries", Values: "1 to 100", Effect: "consecutive failures until an endpoint is down",
			set: func(s *Settings, _, v string) error { return setNumber(&s.ProbeRetries, v, 1, 100) },
		},
	}
}

func tlsAnnotations() (list []Annotation) {
	for _, name := range []string{
		"mtls-frontend-mode", "mtls-frontend-secret", "mtls-frontend-require-cn", "mtls-frontend-cn-pattern",
		"mtls-backend-verify", "mtls-backend-ca-secret", "mtls-backend-client-secret",
	} {
		list = append(list, Annotation{Name: Prefix + name, Values: "(refused)", Effect: "not available", Unavailable: "is not available: loxilb does not terminate TLS, so let the endpoints terminate it"})
	}
	return list
}

// Mode returns the balancer's name of a mode, which is given by name or by the existing
// controller's number.
func Mode(v string) (string, error) {
	words := []string{"default", "onearm", "fullnat", "dsr", "fullproxy", HostMode}
	if n, err := strconv.Atoi(v); err == nil && n >= 0 && n < len(words) {
		v = words[n]
	}
	switch {
	case v == "fullproxy":
		return "", fmt.Errorf("is not available: use mode default, with HAProxy or Envoy as endpoints")
	case v != "auto" && !slices.Contains(words, v):
		return "", notOneOf("default, onearm, fullnat, dsr, hostonearm or auto")
	}
	return v, nil
}

func notOneOf(words string) error { return fmt.Errorf("is not one of %s", words) }

func setText(to *string, v string) error {
	if v == "" || len(v) > 253 {
		return fmt.Errorf("is empty or longer than 253 characters")
	}
	*to = v
	return nil
}

func setProbeText(to *string, v string) error {
	if len(v) > maxProbeText {
		return fmt.Errorf("is longer than %d bytes", maxProbeText)
	}
	*to = v
	return nil
}

func setBool(to *bool, v string) error {
	switch strings.ToLower(v) {
	case "yes", "true":
		*to = true
	case "no", "false":
		*to = false
	default:
		return notOneOf("yes or no")
	}
	return nil
}

func setNumber(to *int, v string, minimum, maximum int) error {
	n, err := strconv.Atoi(v)
	if err != nil || n < minimum || n > maximum {
		return fmt.Errorf("is not a number from %d to %d", minimum, maximum)
	}
	*to = n
	return nil
}

func setSeconds(to *time.Duration, v string) error {
	n := 0
	if err := setNumber(&n, v, 0, 86400); err != nil {
		return fmt.Errorf("is not a number of seconds from 0 to 86400")
	}
	*to = time.Duration(n) * time.Second
	return nil
}

func parseList(v string, maximum int) (out []string, err error) {
	for word := range strings.SplitSeq(v, ",") {
		if word = strings.TrimSpace(word); word != "" {
			out = append(out, word)
		}
	}
	if len(out) == 0 || len(out) > maximum {
		return nil, fmt.Errorf("is not a list of 1 to %d values, separated by commas", maximum)
	}
	return out, nil
}

func parseAddresses(v string, maximum int) (out []netip.Addr, err error) {
	words, err := parseList(v, maximum)
	if err != nil {
		return nil, err
	}
	for _, w := range words {
		a, err := netip.ParseAddr(w)
		if err != nil || a.Zone() != "" {
			return nil, fmt.Errorf("has %.100q, which is not an IP address", w)
		}
		out = append(out, a.Unmap())
	}
	return out, nil
}

func parsePrefixes(v string) (out []netip.Prefix, err error) {
	for w := range strings.SplitSeq(v, ",") {
		if w = strings.TrimSpace(w); w == "" {
			continue
		}
		p, err := netip.ParsePrefix(w)
		if err != nil {
			return nil, fmt.Errorf("has %.100q, which is not a prefix such as 192.0.2.0/24", w)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

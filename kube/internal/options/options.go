// Package options defines the flags of kube-loxilb, which include those of the existing controller.
package options

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"loxilb/kube/internal/address"
	"loxilb/kube/internal/annotation"
	"loxilb/kube/internal/balancer"
)

// Class is the load balancer class of Services.
const Class = "loxilb.io/loxilb"

const portBGP = 179

// Options are the values of the flags.
type Options struct {
	Config, LoxiURL, ExternalCIDR, Pools4, Pools6 string

	UniqueIP, Monitor, PodNetwork, External, NoZoneName bool
	Mode                                                string

	BGP      uint
	BGPPort  int
	BGPPeers string
	MultiHop bool

	Roles, Excluded, Zone string
	Instances             int
	Spread                bool

	Class, Owner, IPMode, Service, Scheme, Port string
	DefaultClass, TakeOver, LeaderElect         bool
	DenyHostMode, PoolsOnly                     bool
	Uninstall                                   bool // not a flag: release all Services
	Namespace, Metrics, Probes, LogLevel        string
	Access                                      balancer.Access

	Ignored []string // sentences about flags that are accepted and have no effect
}

// Flag describes a flag for the documents.
type Flag struct {
	Name, Usage string
	Own         bool // the existing controller lacks it
}

// Register adds the flags.
func Register(fs *flag.FlagSet) *Options {
	o := &Options{}
	o.registerExisting(fs)
	o.registerOwn(fs)
	for _, f := range existingOnly() {
		f.options = o
		fs.Var(&f, f.name, f.usage())
	}
	return o
}

// registerExisting adds the flags that the existing controller has, too.
func (o *Options) registerExisting(fs *flag.FlagSet) {
	fs.StringVar(&o.Config, "config", "", "YAML file with flag names as keys; flags of the command line override it")
	fs.StringVar(&o.LoxiURL, "loxiURL", "", "balancers, such as http://192.0.2.11:11111,https://192.0.2.12:8091; empty: those behind --balancer-service")
	fs.StringVar(&o.ExternalCIDR, "externalCIDR", "", "addresses of defaultPool, such as 192.0.2.0/24")
	fs.StringVar(&o.Pools4, "cidrPools", "", "pools of IPv4 addresses, such as defaultPool=192.0.2.0/24,pool2=198.51.100.1-198.51.100.9")
	fs.StringVar(&o.Pools6, "cidr6Pools", "", "pools of IPv6 addresses, such as defaultPool=2001:db8::/96")
	fs.BoolVar(&o.UniqueIP, "setUniqueIP", false, "give each Service its own addresses; otherwise Services with different ports share them")
	fs.StringVar(&o.Mode, "setLBMode", "0", "mode of Services without the annotation lbmode: a word, or its number 0 to 5")
	fs.BoolVar(&o.Monitor, "monitor", false, "probe endpoints of Services without the annotation liveness")
	fs.BoolVar(&o.PodNetwork, "usePodNetwork", false, "use pods as endpoints instead of node ports")
	fs.BoolVar(&o.External, "useExternalEndpoint", false, "use the endpoints of EndpointSlices that users maintain for Services without a selector")
	fs.UintVar(&o.BGP, "setBGP", 0, "AS of the balancers, which then announce VIPs by BGP; 0: no BGP")
	fs.IntVar(&o.BGPPort, "listenBGPPort", portBGP, "BGP port of the balancers")
	fs.BoolVar(&o.MultiHop, "eBGPMultiHop", false, "allow BGP neighbors that are more than one hop away")
	fs.StringVar(&o.BGPPeers, "extBGPPeers", "", "BGP neighbors of each balancer, such as 192.0.2.1:65001,[2001:db8::1]:65001")
	fs.StringVar(&o.Roles, "setRoles", "", "elect the balancer that owns the VIPs; with mode fullnat, endpoints see this address as the client, or the VIP if it is 0.0.0.0")
	fs.StringVar(&o.Excluded, "excludeRoleList", "", "hosts or nodes of balancers that never own the VIPs")
	fs.StringVar(&o.Zone, "zone", "llb", "zone of this controller, for the annotation zoneselect and the node label zonelabel; part of names on balancers")
	fs.IntVar(&o.Instances, "numZoneInstances", 1, "number of instances, 1 to 32, each with its own MASTER; the annotation zoneinstance selects one")
	fs.BoolVar(&o.NoZoneName, "noZoneName", false, "same as --ip-mode=VIP")
}

// registerOwn adds the flags that the existing controller lacks.
func (o *Options) registerOwn(fs *flag.FlagSet) {
	fs.BoolVar(&o.Spread, "spread-vips", false, "spread VIPs over the instances, and instances over the balancers; needs --setRoles, and --numZoneInstances above 1")
	fs.StringVar(&o.Class, "class", Class, "loadBalancerClass of the Services to serve")
	fs.BoolVar(&o.DefaultClass, "default-class", false, "also serve Services without a loadBalancerClass")
	fs.StringVar(&o.Owner, "owner", "", "owner of this cluster's services on balancers, which other clusters may share; empty: derived from the cluster")
	fs.BoolVar(&o.TakeOver, "take-over", false, "delete services that the existing controller has left on balancers; use it only if no other cluster uses them with this zone")
	fs.BoolVar(&o.DenyHostMode, "deny-hostonearm", false, "refuse Services with lbmode hostonearm, which takes their ports, such as that of SSH, from each address of the balancers' machines")
	fs.BoolVar(&o.PoolsOnly, "pools-only", false, "only allow Services to request addresses of pools; otherwise any user of Services may redirect the nodes' connections to any address outside of the cluster")
	fs.StringVar(&o.IPMode, "ip-mode", "Proxy", "ipMode in statuses: Proxy (pods and nodes reach VIPs through the balancers) or VIP (kube-proxy handles them on each node)")
	fs.StringVar(&o.Service, "balancer-service", "", "headless Service of the balancers, as NAMESPACE/NAME; empty: loxilb-lb-service in kube-loxilb's namespace")
	fs.StringVar(&o.Scheme, "balancer-scheme", "http", "http or https, for balancers behind --balancer-service")
	fs.StringVar(&o.Port, "balancer-port", "", "port of balancers behind --balancer-service; empty: 11111 for http, 8091 for https")
	fs.StringVar(&o.Access.CAFile, "ca-file", "", "CA certificates (PEM) that verify the balancers' certificates; empty: those of the system")
	fs.StringVar(&o.Access.TokenFile, "token-file", "", "file with the balancers' token; empty: environment variable ACCESS_TOKEN_HOST_PORT, with _ for dots and colons")
	fs.StringVar(&o.Access.ServerName, "server-name", "", "name in the balancers' certificates; empty: their address")
	fs.BoolVar(&o.LeaderElect, "leader-elect", true, "elect a leader among several replicas; only the leader works")
	fs.StringVar(&o.Namespace, "namespace", "", "namespace of the Lease and of --balancer-service; empty: POD_NAMESPACE, or kube-system")
	fs.StringVar(&o.Metrics, "metrics-bind-address", ":8080", "listen address of /metrics; 0: none")
	fs.StringVar(&o.Probes, "health-probe-bind-address", ":8081", "listen address of /healthz and /readyz; 0: none")
	fs.StringVar(&o.LogLevel, "log-level", "info", "info or debug")
}

// Flags describes all flags, sorted by name.
func Flags() (list []Flag) {
	all, own := flag.NewFlagSet("", flag.ContinueOnError), flag.NewFlagSet("", flag.ContinueOnError)
	Register(all)
	new(Options).registerOwn(own)
	all.VisitAll(func(f *flag.Flag) {
		list = append(list, Flag{Name: f.Name, Usage: f.Usage, Own: own.Lookup(f.Name) != nil})
	})
	return list
}

// Load sets the flags of the --config file that the command line does not set.
func (o *Options) Load(fs *flag.FlagSet) error {
	if o.Config == "" {
		return nil
	}
	data, err := os.ReadFile(o.Config)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	var values map[string]any
	if err := yaml.UnmarshalStrict(data, &values); err != nil {
		return fmt.Errorf("--config %s: %w", o.Config, err)
	}
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for name, v := range values {
		if fs.Lookup(name) == nil || name == "config" {
			return fmt.Errorf("--config %s: unknown flag %q", o.Config, name)
		}
		if given[name] {
			continue
		}
		text, err := textOf(v)
		if err != nil {
			return fmt.Errorf("--config %s: %s %w", o.Config, name, err)
		}
		if err := fs.Set(name, text); err != nil {
			return fmt.Errorf("--config %s: %s: %q %w", o.Config, name, text, err)
		}
	}
	return nil
}

// textOf returns a YAML value in the syntax of the command line: an AS of 32 bits, for instance,
// has no exponent.
func textOf(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", errors.New("has no value: give one, or omit the key")
	case map[string]any:
		return "", errors.New("has keys of its own, where a value or a list is expected")
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	case []any:
		words := make([]string, len(v))
		for i, one := range v {
			word, err := textOf(one)
			if err != nil {
				return "", err
			}
			words[i] = word
		}
		return strings.Join(words, ","), nil
	}
	return fmt.Sprint(v), nil
}

// Parsed is the parsed form of the flags.
type Parsed struct {
	URLs      []string
	Pools     []address.Pool
	Sharing   address.Sharing
	Defaults  annotation.Settings
	Roles     balancer.Roles
	BGP       balancer.BGP
	IPMode    corev1.LoadBalancerIPMode
	Discovery types.NamespacedName
}

// Parse parses the flags, and checks which of them can be combined.
func (o *Options) Parse() (p Parsed, err error) {
	for _, u := range words(o.LoxiURL) {
		if _, err := balancer.ParseURL(u); err != nil {
			return p, fmt.Errorf("--loxiURL: %w", err)
		}
		p.URLs = append(p.URLs, u)
	}
	p.Sharing = address.ShareAlways
	if o.UniqueIP {
		p.Sharing = address.ShareNever
	}
	if p.Pools, err = o.pools(p.Sharing); err != nil {
		return p, err
	}
	if p.Defaults, err = o.defaults(); err != nil {
		return p, err
	}
	if p.Roles, err = o.roles(); err != nil {
		return p, err
	}
	p.BGP = balancer.BGP{AS: uint32(o.BGP), Port: o.BGPPort, MultiHop: o.MultiHop}
	for _, text := range words(o.BGPPeers) {
		peer, err := balancer.ParsePeer(text)
		if err != nil {
			return p, fmt.Errorf("--extBGPPeers: %w", err)
		}
		p.BGP.Peers = append(p.BGP.Peers, peer)
	}
	if p.IPMode, err = o.ipMode(); err != nil {
		return p, err
	}
	o.setDefaults()
	p.Discovery = o.discovery()
	return p, o.check()
}

func (o *Options) pools(sharing address.Sharing) ([]address.Pool, error) {
	var pools []address.Pool
	for _, f := range []struct{ name, value string }{{"externalCIDR", o.ExternalCIDR}, {"cidrPools", o.Pools4}, {"cidr6Pools", o.Pools6}} {
		more, err := address.ParsePools(f.value, sharing)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", f.name, err)
		}
		for _, pool := range more {
			if i := slices.IndexFunc(pools, func(q address.Pool) bool { return q.Name == pool.Name }); i >= 0 {
				pools[i].Ranges = append(pools[i].Ranges, pool.Ranges...)
			} else {
				pools = append(pools, pool)
			}
		}
	}
	for i := range pools {
		if why := pools[i].Overlap(pools[:i]); why != "" {
			return nil, fmt.Errorf("pool %q: %s", pools[i].Name, why)
		}
	}
	return pools, nil
}

func (o *Options) defaults() (s annotation.Settings, err error) {
	if s.Mode, err = annotation.Mode(o.Mode); err != nil {
		return s, fmt.Errorf("--setLBMode %q %w", o.Mode, err)
	}
	if o.Spread {
		s.Instance = annotation.InstanceOfVIP
	}
	s.Monitor, s.PodNetwork, s.External, s.BGP = o.Monitor, o.PodNetwork, o.External, o.BGP != 0
	return s, nil
}

func (o *Options) roles() (r balancer.Roles, err error) {
	if o.Instances < 1 || o.Instances > 32 {
		return r, fmt.Errorf("--numZoneInstances %d is out of range 1-32", o.Instances)
	}
	if o.Spread && (o.Roles == "" || o.Instances == 1) {
		return r, fmt.Errorf("--spread-vips needs --setRoles, and --numZoneInstances above 1")
	}
	r.Instances, r.Excluded, r.Spread = o.Instances, words(o.Excluded), o.Spread
	if o.Roles == "" {
		return r, nil
	}
	if r.VIP, err = netip.ParseAddr(o.Roles); err != nil {
		return r, fmt.Errorf("--setRoles %q is not an IP address", o.Roles)
	}
	return r, nil
}

// check checks the flags that are used as they are, and warns about flags without effect.
func (o *Options) check() error {
	switch {
	case o.BGP > 1<<32-1:
		return fmt.Errorf("--setBGP %d is out of range 1-4294967295", o.BGP)
	case o.BGPPort < 1 || o.BGPPort > 65535:
		return fmt.Errorf("--listenBGPPort %d is out of range 1-65535", o.BGPPort)
	case o.Zone == "" || len(o.Zone) > 63 || strings.ContainsAny(o.Zone, `:/\ `):
		return fmt.Errorf("--zone %q is empty, or has more than 63 characters, a colon, slash or space", o.Zone)
	case o.Scheme != "http" && o.Scheme != "https":
		return fmt.Errorf("--balancer-scheme must be http or https, not %q", o.Scheme)
	case o.LogLevel != "info" && o.LogLevel != "debug":
		return fmt.Errorf("--log-level must be info or debug, not %q", o.LogLevel)
	case len(o.Owner) > 128:
		return fmt.Errorf("--owner has %d characters, and at most 128 are allowed", len(o.Owner))
	}
	if o.BGP == 0 && (o.BGPPeers != "" || o.MultiHop || o.BGPPort != portBGP) {
		o.Ignored = append(o.Ignored, "--extBGPPeers, --eBGPMultiHop and --listenBGPPort have no effect without --setBGP")
	}
	if o.Roles == "" && o.Excluded != "" {
		o.Ignored = append(o.Ignored, "--excludeRoleList has no effect without --setRoles")
	}
	return nil
}

func (o *Options) ipMode() (corev1.LoadBalancerIPMode, error) {
	mode := corev1.LoadBalancerIPMode(o.IPMode)
	if o.NoZoneName {
		mode = corev1.LoadBalancerIPModeVIP
	}
	if mode != corev1.LoadBalancerIPModeVIP && mode != corev1.LoadBalancerIPModeProxy {
		return "", fmt.Errorf("--ip-mode must be Proxy or VIP, not %q", o.IPMode)
	}
	return mode, nil
}

// setDefaults sets empty flags whose defaults depend on the environment or on other flags.
func (o *Options) setDefaults() {
	o.Namespace = cmp.Or(o.Namespace, os.Getenv("POD_NAMESPACE"), "kube-system")
	o.Service = cmp.Or(o.Service, "loxilb-lb-service")
	o.Port = cmp.Or(o.Port, map[string]string{"http": "11111", "https": "8091"}[o.Scheme])
}

// discovery returns the Service of --balancer-service.
func (o *Options) discovery() types.NamespacedName {
	if namespace, name, ok := strings.Cut(o.Service, "/"); ok {
		return types.NamespacedName{Namespace: namespace, Name: name}
	}
	return types.NamespacedName{Namespace: o.Namespace, Name: o.Service}
}

func words(text string) (list []string) {
	for w := range strings.SplitSeq(text, ",") {
		if w = strings.TrimSpace(w); w != "" {
			list = append(list, w)
		}
	}
	return list
}

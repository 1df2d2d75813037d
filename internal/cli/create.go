package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
)

// createFlags are the flags of create lb, as they are written.
type createFlags struct {
	tcp, udp, sctp     []string
	icmp               bool
	mode, algorithm    string
	endpoints          []string
	secondary, sources []string
	mark               uint32
	refuse, tunnel     string
	mss                uint16
	bgp, monitor       bool
	idle               uint32
	persistTimeout     uint32
	persistPrefix      uint8
	name               string
	attach, detach     bool
	security, host     string
	ppv2, egress       bool
	snat               []string
}

const createExample = `  loxicmd create lb 20.20.20.1 --tcp=2020:5001 --endpoints=31.31.31.1:1,32.32.32.1:1,17.17.17.1:1
  loxicmd create lb 20.20.20.1 --tcp=80:8080,443:8443 --udp=53:5353 --endpoints=10.0.0.1:1,10.0.0.2:1
  loxicmd create lb 20.20.20.1 --tcp=80:8080 --select=priority --endpoints=10.0.0.1:5,10.0.0.2:9090:3
  loxicmd create lb 20.20.20.1 --tcp=443:8443 --select=persist --persist-timeout=3600 --endpoints=10.0.0.1:1,10.0.0.2:1
  loxicmd create lb 20.20.20.1 --tcp=8080-8090:80,9000-9010:9100-9110 --udp=any:any --endpoints=10.0.0.1:1,10.0.0.2:1
  loxicmd create lb 20.20.20.1 --tcp=80:80 --mode=dsr --select=hash --endpoints=10.0.0.1:1,10.0.0.2:1
  loxicmd create lb 2001:db8::1 --tcp=80:8080 --endpoints=[2001:db8:1::1]:1,[2001:db8:1::2]:1`

func createLB(o *options) *cobra.Command {
	f := &createFlags{}
	cmd := &cobra.Command{
		Use:     "lb IP",
		Aliases: []string{"loadbalancer"},
		Short:   "create or update services of a VIP",
		Long: "Each port of each protocol is a service of its own; all of them are taken, or none.\n" +
			"A service that exists is updated, and connections of endpoints that stay are not disturbed.",
		Example: createExample,
		Args:    exactly("the VIP, as in: loxicmd create lb 20.20.20.1 --tcp=2020:5001 --endpoints=31.31.31.1:1"),
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := f.entries(args[0])
			if err != nil {
				return err
			}
			client, err := o.client()
			if err != nil {
				return err
			}
			body, err := o.answer(client.CreateLoadbalancer(cmd.Context(), request(list)))
			if err != nil {
				return err
			}
			return o.done(body)
		},
	}
	f.register(cmd)
	return cmd
}

func (f *createFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringSliceVar(&f.tcp, "tcp", nil, "TCP ports as PORT:ENDPOINTPORT, several with commas; FIRST-LAST is a range, any is 1-65535")
	fs.StringSliceVar(&f.udp, "udp", nil, "UDP ports, likewise")
	fs.StringSliceVar(&f.endpoints, "endpoints", nil, "IP:WEIGHT or IP:PORT:WEIGHT, IPv6 in brackets, in the order of round robin")
	fs.StringVar(&f.algorithm, "select", "rr", "rr (round robin), priority (weighted round robin), hash (consistent, by addresses and ports), persist (where the client was last), lc (fewest connections) or random; not available yet: n2, n3")
	fs.StringVar(&f.mode, "mode", "default", "default (the client's address is kept), onearm (it becomes the load balancer's), fullnat (the VIP), dsr (endpoints have the VIP too, and answer clients directly), hostonearm (VIP 0.0.0.0 or ::, every local address); not available yet: fullproxy")
	fs.StringSliceVar(&f.snat, "snat", nil, "addresses that the client's becomes in modes onearm, fullnat and hostonearm, and the endpoints' with --egress; each has 64,000 connections with each endpoint")
	fs.Uint32Var(&f.idle, "inatimeout", 0, "idle timeout in seconds; 0 is the protocol's default")
	fs.StringVar(&f.refuse, "refuse", "", "new connections while no endpoint takes any, and TCP segments of none: reject (RST, ICMP port unreachable; the default), drop, or pass (to the kernel)")
	fs.StringVar(&f.tunnel, "tunnel", "", "with --mode=dsr, how endpoints are reached: none (by MAC address; the default), ipip (an outer IP header), or gue (that and UDP to port 6080)")
	fs.Uint16Var(&f.mss, "mss", 0, "largest TCP segment that client and endpoint may agree on; 0 leaves it to them")
	fs.Uint32Var(&f.persistTimeout, "persist-timeout", 0, "with --select=persist: seconds without a new connection until a client is forgotten; 0 is 10800")
	fs.Uint8Var(&f.persistPrefix, "persist-prefix", 0, "with --select=persist: leading bits of an address that make the client, as 64 for IPv6 networks; 0 is all")
	fs.StringVar(&f.name, "name", "", "name of the services; others may have it too")
	fs.BoolVar(&f.attach, "attachEP", false, "add the endpoints to those that the service has, and leave the rest as it is")
	fs.BoolVar(&f.detach, "detachEP", false, "remove the endpoints from the service, and the service with its last endpoint")
	fs.StringSliceVar(&f.secondary, "secips", nil, "up to 3 further VIPs of the same service, several with commas")
	fs.StringSliceVar(&f.sources, "sources", nil, "prefixes that may connect, several with commas; none: all may")
	fs.Uint32Var(&f.mark, "mark", 0, "mark (skb->mark) of the service's packets; 0: of any that no other service wants")
	fs.BoolVar(&f.icmp, "icmp", false, "balance echo requests (ping) to the VIP")
	fs.BoolVar(&f.egress, "egress", false, "connections that the endpoints open by the default route leave with the VIP for a source, or with one of --snat")
	const later = "not available yet: "
	fs.StringSliceVar(&f.sctp, "sctp", nil, later+"SCTP ports")
	fs.BoolVar(&f.bgp, "bgp", false, later+"advertise the VIP by BGP")
	fs.BoolVar(&f.monitor, "monitor", false, later+"probe the endpoints")
	fs.StringVar(&f.security, "security", "", later+"https or tls, e2ehttps or e2etls")
	fs.StringVar(&f.host, "host", "", later+"host to match")
	fs.BoolVar(&f.ppv2, "ppv2en", false, later+"send a PROXY protocol header to the endpoint")
	cmd.MarkFlagsMutuallyExclusive("attachEP", "detachEP")
}

// entries makes an entry of each port.
func (f *createFlags) entries(vip string) ([]v1.LoadbalanceEntry, error) {
	if _, err := lb.ParseAddr(lb.FieldVIP, vip); err != nil {
		return nil, err
	}
	args, err := f.arguments(vip)
	if err != nil {
		return nil, err
	}
	if len(f.endpoints) == 0 {
		return nil, errors.New("--endpoints is missing: IP:WEIGHT, several with commas")
	}
	endpoints := make([]lb.Endpoint, len(f.endpoints))
	for i, e := range f.endpoints {
		if endpoints[i], err = lb.ParseEndpointFlag(strings.TrimSpace(e)); err != nil {
			return nil, err
		}
	}
	var list []v1.LoadbalanceEntry
	add := func(protocol lb.Protocol, p lb.PortPair) {
		a := args
		a.Protocol, a.Port, a.PortMax = protocol.String(), int(p.Service.First), int(p.Service.Max())
		list = append(list, f.entry(a, endpoints, p))
	}
	for _, ports := range [...]struct {
		protocol lb.Protocol
		pairs    []string
	}{{lb.TCP, f.tcp}, {lb.UDP, f.udp}, {lb.SCTP, f.sctp}} {
		if len(ports.pairs) == 0 {
			continue
		}
		pairs, err := lb.ParsePortPairs(strings.Join(ports.pairs, ","))
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", ports.protocol, err)
		}
		for _, p := range pairs {
			add(ports.protocol, p)
		}
	}
	if f.icmp {
		add(lb.ICMP, lb.PortPair{})
	}
	if len(list) == 0 {
		return nil, errors.New("no port is given: --tcp=PORT:ENDPOINTPORT or --udp=PORT:ENDPOINTPORT, or --icmp")
	}
	return list, nil
}

// arguments are what all of the services share.
func (f *createFlags) arguments(vip string) (a v1.ServiceArguments, err error) {
	mode, err := lb.ParseMode(f.mode)
	if err != nil {
		return a, err
	}
	algorithm, err := lb.ParseAlgorithm(f.algorithm)
	if err != nil {
		return a, err
	}
	a = v1.ServiceArguments{
		Refuse: f.refuse, Tunnel: f.tunnel, Mss: int(f.mss), ExternalIP: vip, Mode: v1.Choice(strconv.Itoa(int(mode))), SnatIPs: f.snat, Sel: v1.Choice(strconv.Itoa(int(algorithm))),
		Bgp: f.bgp, Monitor: f.monitor, Block: int(f.mark), InactiveTimeOut: int(f.idle), PersistTimeout: int(f.persistTimeout), PersistPrefix: int(f.persistPrefix), Name: f.name,
		Host: f.host, Proxyprotocolv2: f.ppv2, Egress: f.egress,
	}
	switch {
	case f.attach:
		a.Oper = 1
	case f.detach:
		a.Oper = 2
	}
	switch f.security {
	case "":
	case "https", "tls":
		a.Security = 1
	case "e2ehttps", "e2etls":
		a.Security = 2
	default:
		return a, fmt.Errorf("--security %q is none of https, tls, e2ehttps and e2etls", f.security)
	}
	return a, nil
}

func (f *createFlags) entry(a v1.ServiceArguments, endpoints []lb.Endpoint, p lb.PortPair) v1.LoadbalanceEntry {
	e := v1.LoadbalanceEntry{ServiceArguments: a}
	for _, given := range endpoints {
		list := []lb.Endpoint{given}
		if given.Port == 0 {
			list = p.Endpoints(given)
		}
		for _, ep := range list {
			e.Endpoints = append(e.Endpoints, v1.Endpoint{
				EndpointIP: ep.Addr.String(), TargetPort: int(ep.Port), TargetPortMax: int(ep.PortMax), Weight: new(int(ep.Weight)),
			})
		}
	}
	for _, ip := range f.secondary {
		e.SecondaryIPs = append(e.SecondaryIPs, v1.SecondaryIP{SecondaryIP: ip})
	}
	for _, p := range f.sources {
		e.AllowedSources = append(e.AllowedSources, v1.AllowedSource{Prefix: p})
	}
	return e
}

// request is one service as any server of the contract takes it, or several as ours does.
func request(list []v1.LoadbalanceEntry) v1.LoadbalanceRequest {
	if len(list) > 1 {
		return v1.LoadbalanceRequest{LbAttr: list}
	}
	e := list[0]
	return v1.LoadbalanceRequest{
		ServiceArguments: &e.ServiceArguments, Endpoints: e.Endpoints,
		SecondaryIPs: e.SecondaryIPs, AllowedSources: e.AllowedSources,
	}
}

// exactly asks for one argument, and says which when it is missing.
func exactly(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch len(args) {
		case 0:
			return errors.New("an argument is missing: " + what)
		case 1:
			return nil
		}
		return fmt.Errorf("%q is one argument too many", args[1])
	}
}

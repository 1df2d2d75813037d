package services

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
	"loxilb/internal/lb"
)

// createFlags are the flags of create lb: the flags of fields, and other flags, unparsed.
type createFlags struct {
	session.FieldFlags[lb.Service, v1.LoadbalanceEntry]
	ports          portFlags
	icmp           bool
	endpoints      []string
	backups        []string
	attach, detach bool
	security, host string
	force          bool

	repeated []string // endpoints that were given twice
	doubtful []string // probable mistakes in endpoints
}

// maxPlausibleWeight is the largest weight in IP:WEIGHT that is unlikely to be a port.
const maxPlausibleWeight = 256

const createExample = `  loxicmd create lb 20.20.20.1 --tcp=2020:5001 --endpoints=31.31.31.1:1,32.32.32.1:1,17.17.17.1:1 --monitor
  loxicmd create lb 20.20.20.1 --tcp=80:8080,443:8443 --udp=53:5353 --endpoints=10.0.0.1:1,10.0.0.2:1
  loxicmd create lb 20.20.20.1 --tcp=80:8080 --select=priority --endpoints=10.0.0.1:5,10.0.0.2:9090:3
  loxicmd create lb 20.20.20.1 --tcp=443:8443 --select=persist --persist-timeout=3600 --endpoints=10.0.0.1:1,10.0.0.2:1
  loxicmd create lb 20.20.20.1 --tcp=8080-8090:80,9000-9010:9100-9110 --udp=any:any --endpoints=10.0.0.1:1,10.0.0.2:1
  loxicmd create lb 20.20.20.1 --tcp=80:8080 --endpoints=10.0.0.1:1,10.0.0.2:1 --probetype=http --probereq=/health --probe-interval=500ms
  loxicmd create lb 20.20.20.1 --tcp=80:80 --mode=dsr --select=hash --endpoints=10.0.0.1:1,10.0.0.2:1
  loxicmd create lb 2001:db8::1 --tcp=80:8080 --endpoints=[2001:db8:1::1]:1,[2001:db8:1::2]:1`

func createLB(o *session.Options) *cobra.Command {
	f := &createFlags{ports: portFlags{}, FieldFlags: session.NewFieldFlags[lb.Service, v1.LoadbalanceEntry](append(lb.Fields(), lb.KeyFields()...))}
	cmd := &cobra.Command{
		Use:     "lb IP",
		Aliases: []string{"loadbalancer"},
		Short:   "Create or update services of a VIP",
		Long: "Creates or updates services. Each port of each protocol is a separate service; either all are\n" +
			"created or none. Updating a service does not disturb connections to endpoints that remain. An\n" +
			"identical service is reported as unchanged.\n\n" +
			"PORT:FIRST-LAST makes an endpoint of each of these ports at each address, FIRST-LAST:FIRST-LAST\n" +
			"maps port by port. A service of one port within another's range has that port to itself. An\n" +
			"endpoint that is the VIP and port of another service hands its share to that service's\n" +
			"endpoints. Without --icmp, this machine answers pings to its VIPs.",
		Example: createExample,
		Args:    session.Exactly("the VIP, as in: loxicmd create lb 20.20.20.1 --tcp=2020:5001 --endpoints=31.31.31.1:1"),
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := f.entries(args[0])
			if err != nil {
				return err
			}
			for _, text := range f.repeated {
				fmt.Fprintf(o.Env.Stderr, "Warning: endpoint %s is given twice\n", text)
			}
			for _, text := range f.doubtful {
				fmt.Fprintf(o.Env.Stderr, "Warning: %s\n", text)
			}
			return o.Create(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.CreateLoadbalancer(ctx, &v1.CreateLoadbalancerParams{Force: session.ForceText(f.force)}, v1.RequestOf(list))
			})
		},
	}
	f.register(cmd)
	return cmd
}

func (f *createFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SortFlags = false
	f.ports.register(fs, " as PORT:ENDPOINTPORT, comma-separated; FIRST-LAST is a range, any is 1-65535")
	fs.BoolVar(&f.icmp, "icmp", false, "balance echo requests (ping) to the VIP")
	fs.StringSliceVar(&f.endpoints, "endpoints", nil,
		"endpoints as IP:WEIGHT or IP:PORT:WEIGHT in round-robin order, IPv6 in brackets; suffix @LEVEL for a backup, then #ID for a server ID of --select=quic")
	fs.StringSliceVar(&f.backups, "backup", nil, "backups of level 1, in the format of --endpoints: used while too few of --endpoints are up")
	f.FieldFlags.Register(cmd)
	session.NameEndpoints(cmd)
	fs.BoolVar(&f.attach, "attachEP", false, "add the endpoints to the service, and change nothing else")
	fs.BoolVar(&f.detach, "detachEP", false, "remove the endpoints from the service, and the service with its last endpoint")
	fs.BoolVar(&f.force, "force", false, "proceed even if this cuts connections of the machine itself, such as your SSH session")
	const missing = "not part of this build: "
	f.ports.registerMissing(fs)
	fs.StringVar(&f.security, "security", "", missing+"https or tls, e2ehttps or e2etls")
	fs.StringVar(&f.host, "host", "", missing+"host to match")
	cmd.MarkFlagsMutuallyExclusive("attachEP", "detachEP")
}

// entries returns an entry for each port.
func (f *createFlags) entries(vip string) ([]v1.LoadbalanceEntry, error) {
	if _, err := lb.ParseAddr(lb.FieldVIP, vip); err != nil {
		return nil, err
	}
	shared, err := f.shared(vip)
	if err != nil {
		return nil, err
	}
	endpoints, err := f.allEndpoints()
	if err != nil {
		return nil, err
	}
	var list []v1.LoadbalanceEntry
	add := func(protocol lb.Protocol, p lb.PortPair) {
		e := shared
		a := &e.ServiceArguments
		a.Protocol, a.Port, a.PortMax = protocol.String(), int(p.Service.First), int(p.Service.Max())
		e.Endpoints = endpointsOf(endpoints, p)
		list = append(list, e)
	}
	err = f.ports.each(func(protocol lb.Protocol, texts []string) error {
		pairs, err := lb.ParsePortPairs(strings.Join(texts, ","))
		for _, p := range pairs {
			add(protocol, p)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if f.icmp {
		add(lb.ICMP, lb.PortPair{})
	}
	if len(list) == 0 {
		return nil, errors.New("no port given: use --tcp=PORT:ENDPOINTPORT, or --udp or --sctp in the same way, or --icmp")
	}
	return list, nil
}

// allEndpoints returns the endpoints of --endpoints and of --backup, each once.
func (f *createFlags) allEndpoints() (all []lb.Endpoint, err error) {
	if len(f.endpoints)+len(f.backups) == 0 {
		return nil, errors.New("--endpoints is missing: use IP:WEIGHT, comma-separated")
	}
	for i, text := range append(f.endpoints, f.backups...) {
		flag := "endpoints"
		if i >= len(f.endpoints) {
			flag = "backup"
		}
		if strings.TrimSpace(text) == "" && len(f.endpoints)+len(f.backups) > 1 { // after an extra comma
			continue
		}
		e, err := lb.ParseEndpointFlag(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", flag, err)
		}
		if flag == "backup" && e.Backup == 0 {
			if strings.Contains(text, "@") {
				return nil, fmt.Errorf("--backup %q has level 0, which --endpoints is for (allowed: 1 to %d)", text, lb.MaxBackup)
			}
			e.Backup = 1
		}
		if e.Port == 0 && e.Weight > maxPlausibleWeight {
			f.doubtful = append(f.doubtful, fmt.Sprintf("endpoint %s has weight %d and the port of --tcp or --udp: if %d is its port, write %s",
				strings.TrimSpace(text), e.Weight, e.Weight, netip.AddrPortFrom(e.Addr, e.Weight).String()+":1"))
		}
		if slices.Contains(all, e) {
			f.repeated = append(f.repeated, endpointWords(&e))
			continue
		}
		all = append(all, e)
	}
	return all, nil
}

// shared returns an entry with the properties that all of the services have.
func (f *createFlags) shared(vip string) (v1.LoadbalanceEntry, error) {
	e := f.Entry()
	a := &e.ServiceArguments
	a.ExternalIP, a.Host = vip, f.host
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
		return e, fmt.Errorf("--security %q is unknown (allowed: https, tls, e2ehttps, e2etls)", f.security)
	}
	return e, nil
}

// endpointsOf sets the ports of the pair on endpoints without ports of their own.
func endpointsOf(endpoints []lb.Endpoint, p lb.PortPair) []v1.Endpoint {
	var out []v1.Endpoint
	for _, given := range endpoints {
		list := []lb.Endpoint{given}
		if given.Port == 0 {
			list = p.Endpoints(given)
		}
		for _, ep := range list {
			out = append(out, v1.Endpoint{
				EndpointIP: ep.Addr.String(), TargetPort: int(ep.Port), TargetPortMax: int(ep.PortMax), Weight: new(int(ep.Weight)), Backup: int(ep.Backup), ServerID: ep.ServerID,
			})
		}
	}
	return out
}

// endpointWords describes an endpoint and its weight: 10.0.0.1:1 alone looks like a port.
func endpointWords(e *lb.Endpoint) string {
	at := e.Addr.String()
	if e.Port != 0 {
		at = e.AddrPort().String()
	}
	return fmt.Sprintf("%s weight %d", at, e.Weight)
}

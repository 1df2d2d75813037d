package services

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
	"loxilb/internal/lb"
)

// deleteFlags are the flags of delete lb, unparsed.
type deleteFlags struct {
	ports      portFlags
	icmp, bgp  bool
	all        session.AllFlags
	mark       uint32
	name, host string
}

func deleteLB(o *session.Options) *cobra.Command {
	f := &deleteFlags{ports: portFlags{}}
	cmd := &cobra.Command{
		Use:     "lb [IP...]",
		Aliases: []string{"loadbalancer"},
		Short:   "Delete services by VIP and port, or by name",
		Long: "Deletes services. Each port of each protocol at each VIP is a separate service. Missing services\n" +
			"are reported, and are not an error.",
		Example: "  loxicmd delete lb 20.20.20.1 --tcp=2020\n  loxicmd delete lb 20.20.20.1 20.20.20.2 --tcp=80,443 --udp=53\n" +
			"  loxicmd delete lb --name=web\n  loxicmd delete lb --all",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(args); err != nil {
				return err
			}
			client, err := o.Client()
			if err != nil {
				return err
			}
			return f.run(cmd, o, client, args)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	f.ports.register(fs, ": PORT, FIRST-LAST or any (1-65535), comma-separated")
	f.ports.registerMissing(fs)
	fs.BoolVar(&f.icmp, "icmp", false, "the service for echo requests (ping)")
	fs.StringVar(&f.name, "name", "", "delete all services with this name")
	f.all.Register(fs, "delete all services; asks first at a terminal")
	fs.StringVar(&f.host, "host", "any", "host of the service (not part of this build)")
	fs.Uint32Var(&f.mark, "mark", 0, "mark of the service")
	fs.BoolVar(&f.bgp, "bgp", false, "withdraw the VIP from BGP (no effect)")
	return cmd
}

func (f *deleteFlags) check(args []string) error {
	ports := f.ports.given() || f.icmp
	switch {
	case f.all.All && (f.name != "" || ports || len(args) > 0):
		return errors.New("--all cannot be combined with other selections")
	case f.all.All:
		return nil
	case f.name != "" && (ports || len(args) > 1):
		return errors.New("--name cannot be combined with a port or several VIPs")
	case f.name != "":
		return nil
	case len(args) == 0:
		return errors.New("no service selected: give a VIP and port, such as: loxicmd delete lb 20.20.20.1 --tcp=2020, or --name, or --all")
	case !ports:
		return errors.New("no port given: use --tcp=PORT, --udp=PORT, --sctp=PORT or --icmp")
	}
	return nil
}

func (f *deleteFlags) run(cmd *cobra.Command, o *session.Options, client *v1.Client, args []string) error {
	ctx := cmd.Context()
	var resp *http.Response
	var err error
	switch {
	case f.all.All:
		return f.deleteAll(cmd, o, client)
	case f.name != "":
		resp, err = client.DeleteLoadbalancerByName(ctx, f.name)
	default:
		keys, kerr := f.keys(args)
		if kerr != nil {
			return kerr
		}
		resp, err = f.request(cmd, client, keys)
	}
	body, err := o.Answer(resp, err)
	if err != nil {
		return err
	}
	return o.Done(body)
}

// deleteAll deletes every service, and reports their number.
func (f *deleteFlags) deleteAll(cmd *cobra.Command, o *session.Options, client *v1.Client) error {
	answer, err := o.Answer(client.GetLoadbalancers(cmd.Context(), &v1.GetLoadbalancersParams{}))
	if err != nil {
		return err
	}
	var list v1.LoadbalanceList
	count := -1 // not known
	if session.Decode(answer, &list) == nil {
		count = len(list.LbAttr)
	}
	if err := f.all.Agreed(o, count, "service"); err != nil {
		return err
	}
	body, err := o.Answer(client.DeleteLoadbalancers(cmd.Context()))
	if err != nil {
		return err
	}
	return o.Deleted(body, count, "service")
}

// keys returns the keys of the services: each port of each protocol at each VIP.
func (f *deleteFlags) keys(vips []string) (list []lb.Key, err error) {
	for _, vip := range vips {
		a, err := lb.ParseAddr(lb.FieldVIP, vip)
		if err != nil {
			return nil, err
		}
		err = f.ports.each(func(protocol lb.Protocol, texts []string) error {
			for _, text := range texts {
				r, err := lb.ParsePortRange("port", strings.TrimSpace(text))
				if err != nil {
					return err
				}
				list = append(list, lb.Key{VIP: a, Port: r.First, PortMax: r.Max(), Protocol: protocol, Mark: f.mark})
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if f.icmp {
			list = append(list, lb.Key{VIP: a, Protocol: lb.ICMP, Mark: f.mark})
		}
	}
	return list, nil
}

// request deletes one service by the contract's request, or several in one transaction by loxilb's
// own request.
func (f *deleteFlags) request(cmd *cobra.Command, client *v1.Client, keys []lb.Key) (*http.Response, error) {
	bgp := strconv.FormatBool(f.bgp)
	if len(keys) > 1 {
		list := make([]v1.ServiceKey, len(keys))
		for i, k := range keys {
			list[i] = v1.ServiceKey{
				ExternalIP: k.VIP.String(), Port: int(k.Port), PortMax: int(k.PortMax), Protocol: k.Protocol.String(), Block: int(k.Mark), Host: f.host,
			}
		}
		return client.DeleteLoadbalancerList(cmd.Context(), &v1.DeleteLoadbalancerListParams{Bgp: bgp}, v1.ServiceKeyList{LbAttr: list})
	}
	k := keys[0]
	vip, first, proto, block := k.VIP.String(), strconv.Itoa(int(k.Port)), k.Protocol.String(), strconv.Itoa(int(k.Mark))
	if k.PortMax != 0 {
		return client.DeleteLoadbalancerHostRange(cmd.Context(), f.host, vip, first, strconv.Itoa(int(k.PortMax)), proto,
			&v1.DeleteLoadbalancerHostRangeParams{Bgp: bgp, Block: block})
	}
	return client.DeleteLoadbalancerHost(cmd.Context(), f.host, vip, first, proto,
		&v1.DeleteLoadbalancerHostParams{Bgp: bgp, Block: block})
}

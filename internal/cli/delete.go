package cli

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
)

// deleteFlags are the flags of delete lb, as they are written.
type deleteFlags struct {
	tcp, udp, sctp string
	icmp, bgp, all bool
	mark           uint32
	name, host     string
}

func deleteLB(o *options) *cobra.Command {
	f := &deleteFlags{}
	cmd := &cobra.Command{
		Use:     "lb [IP]",
		Aliases: []string{"loadbalancer"},
		Short:   "delete a service, by its VIP and port, or all of a name",
		Example: "  loxicmd delete lb 20.20.20.1 --tcp=2020\n  loxicmd delete lb --name=web\n  loxicmd delete lb --all",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(args); err != nil {
				return err
			}
			client, err := o.client()
			if err != nil {
				return err
			}
			return f.run(cmd, o, client, args)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.tcp, "tcp", "", "TCP port, or FIRST-LAST of a range; any is 1-65535")
	fs.StringVar(&f.udp, "udp", "", "UDP port, likewise")
	fs.StringVar(&f.sctp, "sctp", "", "SCTP port (not available yet)")
	fs.BoolVar(&f.icmp, "icmp", false, "the service of echo requests (not available yet)")
	fs.StringVar(&f.name, "name", "", "name: all services that have it")
	fs.BoolVar(&f.all, "all", false, "all services")
	fs.StringVar(&f.host, "host", "any", "host of the service (not available yet)")
	fs.Uint32Var(&f.mark, "mark", 0, "mark of the service")
	fs.BoolVar(&f.bgp, "bgp", false, "withdraw the VIP from BGP (not available yet)")
	return cmd
}

func (f *deleteFlags) check(args []string) error {
	ports := f.tcp != "" || f.udp != "" || f.sctp != "" || f.icmp
	switch {
	case f.all && (f.name != "" || ports || len(args) > 0):
		return errors.New("--all stands beside another choice: which services are meant?")
	case f.all:
		return nil
	case f.name != "" && ports:
		return errors.New("--name stands beside a port: which service is meant?")
	case f.name != "":
		return nil
	case len(args) == 0:
		return errors.New("which service? The VIP and a port, as in: loxicmd delete lb 20.20.20.1 --tcp=2020, or --name, or --all")
	case !ports:
		return errors.New("which port? --tcp=PORT or --udp=PORT, or --icmp")
	}
	_, err := lb.ParseAddr(lb.FieldVIP, args[0])
	return err
}

func (f *deleteFlags) run(cmd *cobra.Command, o *options, client *v1.Client, args []string) error {
	ctx := cmd.Context()
	var body []byte
	var err error
	switch {
	case f.all:
		body, err = o.answer(client.DeleteLoadbalancers(ctx))
	case f.name != "":
		body, err = o.answer(client.DeleteLoadbalancerByName(ctx, f.name))
	default:
		ports, perr := f.ports()
		if perr != nil {
			return perr
		}
		for _, p := range ports {
			if body, err = o.answer(f.request(cmd, client, args[0], p)); err != nil {
				break
			}
		}
	}
	if err != nil {
		return err
	}
	return o.done(body)
}

// portRange is the ports of a service; last is 0 for one port.
type portRange struct {
	protocol    lb.Protocol
	first, last uint16
}

func (f *deleteFlags) ports() (list []portRange, err error) {
	for _, p := range [...]struct {
		protocol lb.Protocol
		text     string
	}{{lb.TCP, f.tcp}, {lb.UDP, f.udp}, {lb.SCTP, f.sctp}} {
		if p.text == "" {
			continue
		}
		r, err := lb.ParsePortRange("port", p.text)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", p.protocol, err)
		}
		list = append(list, portRange{protocol: p.protocol, first: r.First, last: r.Max()})
	}
	if f.icmp {
		list = append(list, portRange{protocol: lb.ICMP})
	}
	return list, nil
}

func (f *deleteFlags) request(cmd *cobra.Command, client *v1.Client, vip string, p portRange) (*http.Response, error) {
	bgp, block := strconv.FormatBool(f.bgp), strconv.Itoa(int(f.mark))
	first, proto := strconv.Itoa(int(p.first)), p.protocol.String()
	if p.last != 0 {
		return client.DeleteLoadbalancerHostRange(cmd.Context(), f.host, vip, first, strconv.Itoa(int(p.last)), proto,
			&v1.DeleteLoadbalancerHostRangeParams{Bgp: bgp, Block: block})
	}
	return client.DeleteLoadbalancerHost(cmd.Context(), f.host, vip, first, proto,
		&v1.DeleteLoadbalancerHostParams{Bgp: bgp, Block: block})
}

package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
)

func killCT(o *options) *cobra.Command {
	params := &v1.EndConntracksParams{}
	cmd := &cobra.Command{
		Use:     "ct",
		Aliases: []string{"conntrack", "cts", "conntracks"},
		Short:   "end connections, for both sides",
		Long: "Ends connections that the flags choose; several flags choose what has all of them. Of TCP both sides are told by\n" +
			"a RST. What is half-open, of mode dsr or of another protocol ends at the load balancer. A client may connect\n" +
			"again at once: what it is to find then, services say.",
		Example: "  loxicmd kill ct --source=100.100.100.7\n  loxicmd kill ct --endpoint=31.31.31.1:5001 --rate=100\n  loxicmd kill ct --service=20.20.20.1:2020/tcp --state=est",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.killConntracks(cmd, params)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&params.ServName, "servName", "", "connections of the services of this name")
	fs.StringVar(&params.Service, "service", "", "connections of this service, as IP:PORT/PROTOCOL")
	fs.StringVar(&params.Vip, "vip", "", "connections that clients made to this address")
	fs.StringVar(&params.Protocol, "proto", "", "connections of this protocol (tcp, udp, icmp)")
	fs.StringVar(&params.State, "state", "", "connections in this state, as get ct shows it")
	fs.StringVar(&params.Source, "source", "", "connections of this client, IP or IP/LENGTH")
	fs.StringVar(&params.Endpoint, "endpoint", "", "connections with this endpoint, IP or IP:PORT")
	fs.BoolVar(&params.All, "all", false, "all connections, if no other flag chooses")
	fs.IntVar(&params.Rate, "rate", 1000, "so many a second, up to 10000")
	return cmd
}

// killConntracks asks again while there are more.
func (o *options) killConntracks(cmd *cobra.Command, params *v1.EndConntracksParams) error {
	if params.Rate < 1 {
		return fmt.Errorf("--rate is 1 or more")
	}
	client, err := o.client()
	if err != nil {
		return err
	}
	var sum v1.ConntracksEnded
	for more := true; more; {
		body, err := o.answer(client.EndConntracks(cmd.Context(), params))
		if err != nil {
			return err
		}
		var done v1.ConntracksEnded
		if err := decode(body, &done); err != nil {
			return err
		}
		sum.Told, sum.Silent, more = sum.Told+done.Told, sum.Silent+done.Silent, done.More
	}
	switch o.output {
	case "json":
		return o.print(fmt.Sprintf("{\"told\": %d, \"silent\": %d}\n", sum.Told, sum.Silent))
	case "yaml":
		return o.print(fmt.Sprintf("told: %d\nsilent: %d\n", sum.Told, sum.Silent))
	}
	return o.print(fmt.Sprintf("%d connections ended, %d of them with a RST to both sides\n", sum.Told+sum.Silent, sum.Told))
}

package traffic

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
)

func killCT(o *session.Options) *cobra.Command {
	var filter connectionFilter
	var all session.AllFlags
	var rate int
	cmd := &cobra.Command{
		Use:     "ct",
		Aliases: []string{"conntrack", "cts", "conntracks"},
		Short:   "Terminate connections on both sides",
		Long: "Terminates the connections that match all given flags. Both sides get a RST of TCP or an ABORT\n" +
			"of SCTP. Half-open connections, connections of mode dsr and of other protocols are only forgotten\n" +
			"by the load balancer. A client may reconnect immediately; the service decides about its new connection.",
		Example: "  loxicmd kill ct --source=100.100.100.7\n  loxicmd kill ct --endpoint=31.31.31.1:5001 --rate=100\n  loxicmd kill ct --service=20.20.20.1:2020/tcp --state=est",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			params := filter.end()
			if params == (v1.EndConntracksParams{}) && !all.All {
				return errors.New("no connections selected: give flags that select some, or --all")
			}
			params.All, params.Rate = all.All, rate
			if all.All {
				if err := all.Agreed(o, -1, "connection"); err != nil {
					return err
				}
			}
			return killConntracks(o, cmd, &params)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	filter.flags(fs, "")
	completeFilter(cmd)
	all.Register(fs, "terminate all connections, if no other flag selects some; asks first at a terminal")
	fs.IntVar(&rate, "rate", 1000, "connections terminated per second, up to 10000")
	return cmd
}

// killConntracks repeats the request while connections may be left, from where the previous one
// ended.
func killConntracks(o *session.Options, cmd *cobra.Command, params *v1.EndConntracksParams) error {
	if err := session.AtLeast(1, "rate", params.Rate); err != nil {
		return err
	}
	client, err := o.Client()
	if err != nil {
		return err
	}
	var sum v1.ConntracksEnded
	for more := true; more; {
		done, err := session.DecodeAs[v1.ConntracksEnded](o.Answer(client.EndConntracks(cmd.Context(), params)))
		if err != nil {
			return err
		}
		sum.Told, sum.Silent, more, params.From = sum.Told+done.Told, sum.Silent+done.Silent, done.More, done.Next
	}
	switch o.Output {
	case "json":
		return o.Print(fmt.Sprintf("{\"told\": %d, \"silent\": %d}\n", sum.Told, sum.Silent))
	case "yaml":
		return o.Print(fmt.Sprintf("told: %d\nsilent: %d\n", sum.Told, sum.Silent))
	}
	return o.Print(fmt.Sprintf("%d connections ended, %d of them with a RST or ABORT to both sides\n", sum.Told+sum.Silent, sum.Told))
}

package cli

import (
	"context"
	"errors"
	"net/http"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/netobj"
)

// neighborAliases are the contract's.
func neighborAliases() []string { return []string{"nei", "neigh"} }

func createNeighbor(o *options) *cobra.Command {
	var mac string
	cmd := &cobra.Command{
		Use:     "neighbor IP INTERFACE",
		Aliases: neighborAliases(),
		Short:   "say which MAC address a host on a link has",
		Long:    "Says which MAC address a host on a link has: it is not asked for any more, over restarts too.",
		Example: "  loxicmd create neighbor 10.0.0.5 eth0 --macAddress=00:11:22:aa:bb:cc",
		Args:    arguments("IP", "INTERFACE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if mac == "" {
				return errors.New("--macAddress is missing: the MAC address, as in 00:11:22:aa:bb:cc")
			}
			if _, err := netobj.ParseNeighbor(args[0], args[1], mac); err != nil {
				return err
			}
			return o.creating(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.CreateNeighbor(ctx, v1.Neighbor{IpAddress: args[0], Dev: args[1], MacAddress: mac})
			})
		},
	}
	cmd.Flags().StringVar(&mac, "macAddress", "", "its MAC address, as 00:11:22:aa:bb:cc")
	return cmd
}

func deleteNeighbor(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "neighbor IP INTERFACE",
		Aliases: neighborAliases(),
		Short:   "leave a neighbour to be found by asking, whoever has said it",
		Example: "  loxicmd delete neighbor 10.0.0.5 eth0",
		Args:    arguments("IP", "INTERFACE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := netobj.NeighborKey(args[0], args[1]); err != nil {
				return err
			}
			return o.deleting(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.DeleteNeighbor(ctx, args[0], args[1])
			})
		},
	}
}

func getNeighbor(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "neighbor",
		Aliases: neighborAliases(),
		Short:   "show neighbours whose MAC address is known, by word or by asking",
		Example: "  loxicmd get neighbor",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return showing(cmd.Context(), o, func(ctx context.Context, c *v1.Client) (*http.Response, error) { return c.GetNeighbors(ctx) },
				func(list *v1.NeighborList) *table {
					t := newTable("IP Address", "Device Name", "Mac Address")
					for _, n := range list.NeighborAttr {
						t.add(n.IpAddress, n.Dev, n.MacAddress)
					}
					return t
				})
		},
	}
}

package network

import (
	"context"
	"errors"
	"net/http"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
	"loxilb/internal/kinds"
	"loxilb/internal/lb/netobj"
)

func createNeighbor(o *session.Options) *cobra.Command {
	var mac string
	cmd := &cobra.Command{
		Use:     "neighbor IP INTERFACE",
		Aliases: kinds.Neighbor().Aliases,
		Short:   "Add a neighbor: the MAC address of a host on a link",
		Long: "Sets the MAC address of a host on a link permanently, also across restarts. The kernel no longer\n" +
			"resolves it.",
		Example: "  loxicmd create neighbor 10.0.0.5 eth0 --macAddress=00:11:22:aa:bb:cc",
		Args:    session.Arguments("IP", "INTERFACE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if mac == "" {
				return errors.New("--macAddress is missing: give a MAC address such as 00:11:22:aa:bb:cc")
			}
			if _, err := netobj.ParseNeighbor(args[0], args[1], mac); err != nil {
				return err
			}
			return o.Create(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.CreateNeighbor(ctx, v1.Neighbor{IpAddress: args[0], Dev: args[1], MacAddress: mac})
			})
		},
	}
	cmd.Flags().StringVar(&mac, "macAddress", "", "MAC address, such as 00:11:22:aa:bb:cc")
	return cmd
}

func deleteNeighbor(o *session.Options) *cobra.Command {
	return &cobra.Command{
		Use:     "neighbor IP INTERFACE",
		Aliases: kinds.Neighbor().Aliases,
		Short:   "Delete a neighbor of any origin; the kernel resolves it again",
		Example: "  loxicmd delete neighbor 10.0.0.5 eth0",
		Args:    session.Arguments("IP", "INTERFACE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := netobj.NeighborKey(args[0], args[1]); err != nil {
				return err
			}
			return o.Change(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.DeleteNeighbor(ctx, args[0], args[1])
			})
		},
	}
}

func neighborKind() session.Kind[v1.NeighborList, v1.Neighbor] {
	return session.Kind[v1.NeighborList, v1.Neighbor]{
		Word: "neighbor", Aliases: kinds.Neighbor().Aliases,
		GetHelp:      session.Help{Short: "Show neighbors with a known MAC address, configured or resolved", Example: "  loxicmd get neighbor"},
		DescribeHelp: session.Help{Short: "Show a neighbor in full, with its status and events", Example: "  loxicmd describe neighbor"},
		Key:          "neighborAttr", Object: "neighbor", Fetch: (*v1.Client).GetNeighbors,
		Items:      func(l *v1.NeighborList) *[]v1.Neighbor { return &l.NeighborAttr },
		Name:       func(d *v1.Neighbor) string { return d.IpAddress + "@" + d.Dev },
		OtherNames: func(d *v1.Neighbor) []string { return []string{d.IpAddress, d.MacAddress} },
		Draw: func(list *v1.NeighborList) *session.Table {
			t := session.NewTable("IP Address", "Device Name", "Mac Address")
			for _, n := range list.NeighborAttr {
				t.Add(n.IpAddress, n.Dev, n.MacAddress)
			}
			return t
		},
	}
}

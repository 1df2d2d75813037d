package cli

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/netobj"
)

func createFDB(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "fdb MAC INTERFACE",
		Short:   "say by which interface a MAC address is reached",
		Long:    "Says by which interface a MAC address is reached, in the forwarding table of the bridge that the interface is of.",
		Example: "  loxicmd create fdb 00:11:22:aa:bb:cc eth1",
		Args:    arguments("MAC", "INTERFACE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := netobj.ParseFDB(args[0], args[1]); err != nil {
				return err
			}
			return o.creating(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.CreateFdb(ctx, v1.Fdb{MacAddress: args[0], Dev: args[1]})
			})
		},
	}
}

func deleteFDB(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "fdb MAC INTERFACE",
		Short:   "delete a forwarding entry, whoever made it",
		Example: "  loxicmd delete fdb 00:11:22:aa:bb:cc eth1",
		Args:    arguments("MAC", "INTERFACE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := netobj.ParseFDB(args[0], args[1])
			if err != nil {
				return err
			}
			return o.deleting(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.DeleteFdb(ctx, f.MAC.String(), f.Dev)
			})
		},
	}
}

func getFDB(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "fdb",
		Short:   "show the forwarding tables: what was said, and what was learned",
		Example: "  loxicmd get fdb",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return showing(cmd.Context(), o, func(ctx context.Context, c *v1.Client) (*http.Response, error) { return c.GetFdbs(ctx) },
				func(list *v1.FdbList) *table {
					t := newTable("Device Name", "MAC Address")
					for _, f := range list.FdbAttr {
						t.add(f.Dev, f.MacAddress)
					}
					return t
				})
		},
	}
}

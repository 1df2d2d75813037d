package network

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
	"loxilb/internal/lb/netobj"
)

func createFDB(o *session.Options) *cobra.Command {
	return &cobra.Command{
		Use:     "fdb MAC INTERFACE",
		Short:   "Add a forwarding entry: the interface of a MAC address",
		Long:    "Adds a MAC address to the forwarding table of the interface's bridge.",
		Example: "  loxicmd create fdb 00:11:22:aa:bb:cc eth1",
		Args:    session.Arguments("MAC", "INTERFACE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := netobj.ParseFDB(args[0], args[1]); err != nil {
				return err
			}
			return o.Create(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.CreateFdb(ctx, v1.Fdb{MacAddress: args[0], Dev: args[1]})
			})
		},
	}
}

func deleteFDB(o *session.Options) *cobra.Command {
	return &cobra.Command{
		Use:     "fdb MAC INTERFACE",
		Short:   "Delete a forwarding entry, of any origin",
		Example: "  loxicmd delete fdb 00:11:22:aa:bb:cc eth1",
		Args:    session.Arguments("MAC", "INTERFACE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := netobj.ParseFDB(args[0], args[1])
			if err != nil {
				return err
			}
			return o.Change(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.DeleteFdb(ctx, f.MAC.String(), f.Dev)
			})
		},
	}
}

func fdbKind() session.Kind[v1.FdbList, v1.Fdb] {
	return session.Kind[v1.FdbList, v1.Fdb]{
		Word: "fdb", Key: "fdbAttr", Object: "fdb", Fetch: (*v1.Client).GetFdbs,
		GetHelp:      session.Help{Short: "Show forwarding tables: configured and learned entries", Example: "  loxicmd get fdb"},
		DescribeHelp: session.Help{Short: "Show forwarding entries in full, with status and events", Example: "  loxicmd describe fdb"},
		Items:        func(l *v1.FdbList) *[]v1.Fdb { return &l.FdbAttr },
		Name:         func(d *v1.Fdb) string { return d.MacAddress + "@" + d.Dev },
		OtherNames:   func(d *v1.Fdb) []string { return []string{d.MacAddress, d.Dev} },
		Draw: func(list *v1.FdbList) *session.Table {
			t := session.NewTable("Device Name", "MAC Address")
			for _, f := range list.FdbAttr {
				t.Add(f.Dev, f.MacAddress)
			}
			return t
		},
	}
}

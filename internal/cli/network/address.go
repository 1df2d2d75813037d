package network

import (
	"context"
	"net/http"
	"strconv"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
	"loxilb/internal/kinds"
	"loxilb/internal/lb/netobj"
)

func createAddress(o *session.Options) *cobra.Command {
	return &cobra.Command{
		Use:     "ip IP/LENGTH INTERFACE",
		Aliases: kinds.Address().Aliases,
		Short:   "Add an IPv4 or IPv6 address to an interface",
		Long: "Adds an address to an interface, and restores it when the machine starts or the interface\n" +
			"reappears.",
		Example: "  loxicmd create ip 10.0.0.1/24 eth0\n  loxicmd create ip 2001:db8::1/64 eth0",
		Args:    session.Arguments("IP/LENGTH", "INTERFACE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := netobj.ParseAddress(args[1], args[0]); err != nil {
				return err
			}
			return o.Create(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.CreateAddress(ctx, v1.DeviceAddress{IpAddress: args[0], Dev: args[1]})
			})
		},
	}
}

func deleteAddress(o *session.Options) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:     "ip IP/LENGTH INTERFACE",
		Aliases: kinds.Address().Aliases,
		Short:   "Delete an address of an interface, of any origin",
		Example: "  loxicmd delete ip 10.0.0.1/24 eth0",
		Args:    session.Arguments("IP/LENGTH", "INTERFACE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := netobj.ParseAddress(args[1], args[0])
			if err != nil {
				return err
			}
			at := a.Prefix.Addr()
			params := &v1.DeleteAddressParams{Force: session.ForceText(force)}
			return o.Change(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.DeleteAddress(ctx, at.String(), strconv.Itoa(a.Prefix.Bits()), a.Dev, params)
			})
		},
	}
	session.ForceFlag(cmd, &force)
	return cmd
}

func addressKind(o *session.Options) session.Kind[v1.AddressList, v1.DeviceAddresses] {
	return session.Kind[v1.AddressList, v1.DeviceAddresses]{
		Word: "ip", Aliases: kinds.Address().Aliases,
		GetHelp:      session.Help{Short: "Show addresses of all interfaces", Example: "  loxicmd get ip"},
		DescribeHelp: session.Help{Short: "Show addresses of an interface in full, with status and events", Example: "  loxicmd describe ip"},
		Key:          "ipAttr", Object: "ipv4address", Fetch: (*v1.Client).GetAddresses,
		Items:      func(l *v1.AddressList) *[]v1.DeviceAddresses { return &l.IpAttr },
		Name:       func(d *v1.DeviceAddresses) string { return d.Dev },
		OtherNames: func(d *v1.DeviceAddresses) []string { return d.IpAddress },
		Draw:       func(list *v1.AddressList) *session.Table { return addressTable(list, o.Output == "wide") },
	}
}

func addressTable(list *v1.AddressList, wide bool) *session.Table {
	header := []string{"Device Name", "IP Address"}
	if wide {
		header = append(header, "Sync")
	}
	t := session.NewTable(header...)
	for _, d := range list.IpAttr {
		t.AddLines([][]string{{d.Dev}, d.IpAddress, {strconv.Itoa(d.Sync)}}[:len(header)]...)
	}
	return t
}

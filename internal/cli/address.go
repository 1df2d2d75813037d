package cli

import (
	"context"
	"net/http"
	"net/netip"
	"strconv"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/netobj"
)

// addressAliases are the contract's.
func addressAliases() []string { return []string{"ipv4address", "ipv4", "ipaddress"} }

func createAddress(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "ip IP/LENGTH INTERFACE",
		Aliases: addressAliases(),
		Short:   "give an interface an address, IPv4 or IPv6",
		Long:    "Gives an interface an address, and gives it again when the machine starts or the interface comes back.",
		Example: "  loxicmd create ip 10.0.0.1/24 eth0\n  loxicmd create ip 2001:db8::1/64 eth0",
		Args:    arguments("IP/LENGTH", "INTERFACE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := netobj.ParseAddress(args[1], args[0]); err != nil {
				return err
			}
			return o.creating(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.CreateAddress(ctx, v1.DeviceAddress{IpAddress: args[0], Dev: args[1]})
			})
		},
	}
}

func deleteAddress(o *options) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:     "ip IP/LENGTH INTERFACE",
		Aliases: addressAliases(),
		Short:   "take an address from an interface, whoever gave it",
		Example: "  loxicmd delete ip 10.0.0.1/24 eth0",
		Args:    arguments("IP/LENGTH", "INTERFACE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := netobj.ParseAddress(args[1], args[0])
			if err != nil {
				return err
			}
			at := a.Prefix.Addr()
			if err := ownWay(force, "address "+at.String(), func(here, _ netip.Addr) bool { return here == at }); err != nil {
				return err
			}
			params := &v1.DeleteAddressParams{}
			if force {
				params.Force = strconv.FormatBool(force)
			}
			return o.deleting(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.DeleteAddress(ctx, at.String(), strconv.Itoa(a.Prefix.Bits()), a.Dev, params)
			})
		},
	}
	forceFlag(cmd, &force)
	return cmd
}

func getAddress(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "ip",
		Aliases: addressAliases(),
		Short:   "show the addresses of all interfaces",
		Example: "  loxicmd get ip",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return showing(cmd.Context(), o, func(ctx context.Context, c *v1.Client) (*http.Response, error) { return c.GetAddresses(ctx) },
				func(list *v1.AddressList) *table { return addressTable(list, o.output == "wide") })
		},
	}
}

func addressTable(list *v1.AddressList, wide bool) *table {
	header := []string{"Device Name", "IP Address"}
	if wide {
		header = append(header, "Sync")
	}
	t := newTable(header...)
	for _, d := range list.IpAttr {
		t.addLines([][]string{{d.Dev}, d.IpAddress, {strconv.Itoa(d.Sync)}}[:len(header)]...)
	}
	return t
}

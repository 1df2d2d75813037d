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

func createRoute(o *options) *cobra.Command {
	var proto string
	cmd := &cobra.Command{
		Use:   "route NETWORK GATEWAY",
		Short: "add a route to the main table, or change its gateway",
		Long: "Adds a route, IPv4 or IPv6, and adds it again when the machine starts or the kernel drops it with an interface.\n" +
			"The gateway is in a network of an interface. 0.0.0.0/0 or ::/0 is the default route.",
		Example: "  loxicmd create route 10.1.0.0/16 10.0.0.254\n  loxicmd create route 2001:db8:1::/48 2001:db8::fe --proto=static",
		Args:    arguments("NETWORK", "GATEWAY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := netobj.ParseRoute(args[0], args[1], proto); err != nil {
				return err
			}
			return o.creating(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.CreateRoute(ctx, v1.Route{DestinationIPNet: args[0], Gateway: args[1], Protocol: proto})
			})
		},
	}
	cmd.Flags().StringVar(&proto, "proto", "", "who the kernel is to take for its maker: static, or boot, the default")
	return cmd
}

func deleteRoute(o *options) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:     "route NETWORK",
		Short:   "delete a route of the main table, whoever made it",
		Long:    "Deletes a route: of several to the network, the one that create route has made, or else that of the lowest metric.",
		Example: "  loxicmd delete route 10.1.0.0/16",
		Args:    arguments("NETWORK"),
		RunE: func(cmd *cobra.Command, args []string) error {
			to, err := netobj.ParseDestination(args[0])
			if err != nil {
				return err
			}
			if err := ownWay(force, "route "+to.String(), func(_, there netip.Addr) bool { return to.Contains(there) }); err != nil {
				return err
			}
			return o.deleting(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.DeleteRoute(ctx, to.Addr().String(), strconv.Itoa(to.Bits()))
			})
		},
	}
	forceFlag(cmd, &force)
	return cmd
}

func getRoute(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "route",
		Short:   "show the routes of the main table",
		Example: "  loxicmd get route -o wide",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return showing(cmd.Context(), o, func(ctx context.Context, c *v1.Client) (*http.Response, error) { return c.GetRoutes(ctx) },
				func(list *v1.RouteList) *table { return routeTable(list, o.output == "wide") })
		},
	}
}

func routeTable(list *v1.RouteList, wide bool) *table {
	header := []string{"destinationIPNet", "gateway", "flag"}
	if wide {
		header = append(header, "HardwareMark", "packets", "bytes", "device", "metric")
	}
	t := newTable(header...)
	for _, r := range list.RouteAttr {
		t.add([]string{
			r.DestinationIPNet, r.Gateway, r.Flags, strconv.Itoa(r.HardwareMark), strconv.Itoa(r.Statistic.Packets), strconv.Itoa(r.Statistic.Bytes),
			r.Dev, strconv.Itoa(r.Metric),
		}[:len(header)]...)
	}
	return t
}

package network

import (
	"context"
	"net/http"
	"strconv"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
	"loxilb/internal/lb/netobj"
)

func createRoute(o *session.Options) *cobra.Command {
	var proto string
	var force bool
	cmd := &cobra.Command{
		Use:   "route NETWORK GATEWAY",
		Short: "Add a route to the main table, or change its gateway",
		Long: "Adds an IPv4 or IPv6 route, and restores it when the machine starts or the kernel drops it with\n" +
			"an interface. The gateway must be in a network of an interface. 0.0.0.0/0 and ::/0 are the\n" +
			"default routes.",
		Example: "  loxicmd create route 10.1.0.0/16 10.0.0.254\n  loxicmd create route 2001:db8:1::/48 2001:db8::fe --proto=static",
		Args:    session.Arguments("NETWORK", "GATEWAY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := netobj.ParseRoute(args[0], args[1], proto); err != nil {
				return err
			}
			return o.Create(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.CreateRoute(ctx, &v1.CreateRouteParams{Force: session.ForceText(force)}, v1.Route{DestinationIPNet: args[0], Gateway: args[1], Protocol: proto})
			})
		},
	}
	cmd.Flags().StringVar(&proto, "proto", "", "origin of the route in the kernel: boot (default) or static")
	session.ForceFlag(cmd, &force)
	return cmd
}

func deleteRoute(o *session.Options) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "route NETWORK",
		Short: "Delete a route of the main table, of any origin",
		Long: "Deletes a route. Of several routes to the network, it deletes the one made by create route, else\n" +
			"the one with the lowest metric.",
		Example: "  loxicmd delete route 10.1.0.0/16",
		Args:    session.Arguments("NETWORK"),
		RunE: func(cmd *cobra.Command, args []string) error {
			to, err := netobj.ParseDestination(args[0])
			if err != nil {
				return err
			}
			return o.Change(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.DeleteRoute(ctx, to.Addr().String(), strconv.Itoa(to.Bits()), &v1.DeleteRouteParams{Force: session.ForceText(force)})
			})
		},
	}
	session.ForceFlag(cmd, &force)
	return cmd
}

func routeKind(o *session.Options) session.Kind[v1.RouteList, v1.RouteEntry] {
	return session.Kind[v1.RouteList, v1.RouteEntry]{
		Word: "route", Key: "routeAttr", Object: "route", Served: true, Unsorted: true,
		GetHelp: session.Help{Short: "Show routes of the main table", Long: "Shows routes of the main table. The flags are Ind (through a gateway) or Self (attached), and Host\n" +
			"for a single address.", Example: "  loxicmd get route -o wide"},
		DescribeHelp: session.Help{Short: "Show routes to a network in full, with status and events", Example: "  loxicmd describe route"},
		Fetch: func(c *v1.Client, ctx context.Context, edit ...v1.RequestEditorFn) (*http.Response, error) {
			return c.GetRoutes(ctx, &v1.GetRoutesParams{}, edit...)
		},
		Items: func(l *v1.RouteList) *[]v1.RouteEntry { return &l.RouteAttr },
		Name:  func(d *v1.RouteEntry) string { return d.DestinationIPNet },
		Draw:  func(list *v1.RouteList) *session.Table { return routeTable(list, o.Output == "wide") },
	}
}

func routeTable(list *v1.RouteList, wide bool) *session.Table {
	header := []string{"destinationIPNet", "gateway", "flag"}
	if wide {
		header = append(header, "HardwareMark", "packets", "bytes", "device", "metric")
	}
	t := session.NewTable(header...)
	for _, r := range list.RouteAttr {
		t.Add([]string{
			r.DestinationIPNet, r.Gateway, r.Flags, strconv.Itoa(r.HardwareMark), strconv.Itoa(r.Statistic.Packets), strconv.Itoa(r.Statistic.Bytes),
			r.Dev, strconv.Itoa(r.Metric),
		}[:len(header)]...)
	}
	return t
}

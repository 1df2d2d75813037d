package services

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
	"loxilb/internal/kinds"
	"loxilb/internal/lb"
)

func drainEndpoint(o *session.Options) *cobra.Command {
	var deadline time.Duration
	var rate int
	cmd := &cobra.Command{
		Use:     "endpoint IP[:PORT]",
		Aliases: kinds.Endpoint().Aliases,
		Short:   "Drain an endpoint: stop sending it new connections of any service",
		Long: "Stops sending new connections of any service to an endpoint, or to all ports of an address.\n" +
			"Existing connections continue. At the deadline, remaining connections are reset gradually on\n" +
			"both sides. The drain lasts until undrain, also across restarts. Draining again sets a new\n" +
			"deadline.",
		Example: "  loxicmd drain endpoint 31.31.31.1:5001 --deadline=60s --rate=200\n  loxicmd get drain",
		Args:    session.Exactly("the endpoint, as in: loxicmd drain endpoint 31.31.31.1:5001"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := lb.ParseDrain(args[0]); err != nil {
				return err
			}
			if cmd.Flags().Changed("deadline") && deadline < time.Second {
				return fmt.Errorf("--deadline %v is out of range (allowed: 1s or more)", deadline)
			}
			if err := session.AtLeast(1, "rate", rate); err != nil {
				return err
			}
			return o.Change(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.DrainEndpoint(ctx, v1.DrainRequest{Endpoint: args[0], Within: v1.Seconds(deadline / time.Second), Rate: rate})
			})
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	session.DurationVar(fs, &deadline, "deadline", "", 0, "reset remaining connections after this time, such as 90s or 2h; 0: never")
	fs.IntVar(&rate, "rate", 200, "connections reset per second at the deadline, up to 10000")
	return cmd
}

func undrainEndpoint(o *session.Options) *cobra.Command {
	return &cobra.Command{
		Use:     "endpoint IP[:PORT]",
		Aliases: kinds.Endpoint().Aliases,
		Short:   "Send new connections to a drained endpoint again",
		Example: "  loxicmd undrain endpoint 31.31.31.1:5001",
		Args:    session.Exactly("the endpoint as it was drained, as in: loxicmd undrain endpoint 31.31.31.1:5001"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := lb.ParseDrain(args[0]); err != nil {
				return err
			}
			return o.Change(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.UndrainEndpoint(ctx, &v1.UndrainEndpointParams{Endpoint: args[0]})
			})
		},
	}
}

func drainKind() session.Kind[v1.DrainList, v1.Drain] {
	return session.Kind[v1.DrainList, v1.Drain]{
		Word: "drain", Aliases: []string{"drains"},
		GetHelp:      session.Help{Short: "Show drained endpoints, their remaining connections and deadlines", Example: "  loxicmd get drain"},
		DescribeHelp: session.Help{Short: "Show a drained endpoint in full, with its status and events", Example: "  loxicmd describe drain"},
		Key:          "drainAttr", Object: "drain", Fetch: (*v1.Client).GetDrains,
		Items: func(l *v1.DrainList) *[]v1.Drain { return &l.DrainAttr },
		Name:  func(d *v1.Drain) string { return d.Endpoint },
		Draw: func(list *v1.DrainList) *session.Table {
			t := session.NewTable("Endpoint", "Connections", "Own sockets", "Deadline", "Rate", "Done by")
			for _, d := range list.DrainAttr {
				t.Add(d.Endpoint, strconv.Itoa(d.Connections), strconv.Itoa(d.Sockets), session.TimeCell(d.Deadline), strconv.Itoa(d.Rate)+"/s", session.TimeCell(d.Done))
			}
			return t
		},
	}
}

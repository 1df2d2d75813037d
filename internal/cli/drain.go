package cli

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
)

func drainEndpoint(o *options) *cobra.Command {
	var deadline time.Duration
	var rate int
	cmd := &cobra.Command{
		Use:     "endpoint IP[:PORT]",
		Aliases: endpointAliases(),
		Short:   "have an endpoint take no new connections, of any service",
		Long: "Has an endpoint, or all ports of an address, take no new connections, of any service. Connections that are there\n" +
			"go on; with a deadline, those that are left then are ended for both sides, at a pace. It holds until undrain,\n" +
			"over restarts too. Again, it sets the deadline anew.",
		Example: "  loxicmd drain endpoint 31.31.31.1:5001 --deadline=60s --rate=200\n  loxicmd get drain",
		Args:    exactly("the endpoint, as in: loxicmd drain endpoint 31.31.31.1:5001"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := lb.ParseDrain(args[0]); err != nil {
				return err
			}
			if cmd.Flags().Changed("deadline") && deadline < time.Second {
				return fmt.Errorf("--deadline %v is less than a second", deadline)
			}
			client, err := o.client()
			if err != nil {
				return err
			}
			body, err := o.answer(client.DrainEndpoint(cmd.Context(), v1.DrainRequest{Endpoint: args[0], Within: int(deadline / time.Second), Rate: rate}))
			if err != nil {
				return err
			}
			return o.done(body)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.DurationVar(&deadline, "deadline", 0, "after how long connections that are left are ended, as 90s or 2h; without, never")
	fs.IntVar(&rate, "rate", 200, "so many of them a second, up to 10000")
	return cmd
}

func undrainEndpoint(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "endpoint IP[:PORT]",
		Aliases: endpointAliases(),
		Short:   "let a drained endpoint take new connections again",
		Example: "  loxicmd undrain endpoint 31.31.31.1:5001",
		Args:    exactly("the endpoint as it was drained, as in: loxicmd undrain endpoint 31.31.31.1:5001"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := lb.ParseDrain(args[0]); err != nil {
				return err
			}
			client, err := o.client()
			if err != nil {
				return err
			}
			body, err := o.answer(client.UndrainEndpoint(cmd.Context(), &v1.UndrainEndpointParams{Endpoint: args[0]}))
			if err != nil {
				return err
			}
			return o.done(body)
		},
	}
}

func getDrain(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "drain",
		Aliases: []string{"drains"},
		Short:   "show endpoints that are drained, what they have left, and when they are done",
		Example: "  loxicmd get drain",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := o.client()
			if err != nil {
				return err
			}
			body, err := o.answer(client.GetDrains(cmd.Context()))
			if err != nil {
				return err
			}
			if o.output == "json" || o.output == "yaml" {
				return o.printRaw(body)
			}
			var list v1.DrainList
			if err := decode(body, &list); err != nil {
				return err
			}
			t := newTable("Endpoint", "Connections", "Deadline", "Rate", "Done by")
			for _, d := range list.DrainAttr {
				t.add(d.Endpoint, strconv.Itoa(d.Connections), moment(d.Deadline), strconv.Itoa(d.Rate), moment(d.Done))
			}
			return o.print(t.String())
		},
	}
}

func moment(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return clock(*t)
}

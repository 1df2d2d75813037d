package services

import (
	"context"
	"errors"
	"net/http"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
	"loxilb/internal/kinds"
	"loxilb/internal/lb"
)

func setEndpoint(o *session.Options) *cobra.Command {
	var weight int
	body := v1.EndpointWeight{}
	cmd := &cobra.Command{
		Use:     "endpoint IP[:PORT]",
		Aliases: kinds.Endpoint().Aliases,
		Short:   "Change the weight of an endpoint in all its services",
		Long: "Changes the weight of an endpoint, or of all ports of an address: in all services that contain\n" +
			"it, in services with one name, or in one service. Connections are not disturbed.",
		Example: "  loxicmd set endpoint 31.31.31.1:5001 --weight=5\n  loxicmd set endpoint 31.31.31.1 --weight=0 --servName=web",
		Args:    session.Exactly("the endpoint, as in: loxicmd set endpoint 31.31.31.1:5001 --weight=5"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := lb.ParseDrain(args[0]); err != nil {
				return err
			}
			if !cmd.Flags().Changed("weight") {
				return errors.New("--weight is missing (allowed: 0 to 65535)")
			}
			body.Endpoint, body.Weight = args[0], &weight
			return o.Change(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.SetEndpointWeight(ctx, body)
			})
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.IntVar(&weight, "weight", 0, "0 to 65535; 0 stops new connections and keeps existing ones")
	fs.StringVar(&body.ServName, "servName", "", "change only services with this name")
	fs.StringVar(&body.Service, "service", "", "change only this service, IP:PORT/PROTOCOL")
	return cmd
}

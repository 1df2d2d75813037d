package traffic

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
	"loxilb/internal/kinds"
)

func createSession(o *session.Options) *cobra.Command {
	var access, core string
	cmd := &cobra.Command{
		Use:     "session USER IP",
		Aliases: kinds.Session().Aliases,
		Short:   "Create or change a session: the GTP-U tunnel of a mobile user",
		Long: "Describes the GTP-U tunnel of a mobile user with an IP address, from a base station to a user\n" +
			"plane function, by this machine. Packets stay in the tunnel; create sessionulcl names the\n" +
			"addresses whose packets leave it here.",
		Example: "  loxicmd create session user1 88.88.88.88 --accessNetworkTunnel=1:10.10.10.56 --coreNetworkTunnel=1:10.10.10.59",
		Args:    session.Arguments("USER", "IP"),
		RunE: func(cmd *cobra.Command, args []string) error {
			body := v1.Session{Ident: args[0], SessionIP: args[1]}
			var err error
			if body.AccessNetworkTunnel.TeID, body.AccessNetworkTunnel.TunnelIP, err = tunnelEnd("accessNetworkTunnel", access); err != nil {
				return err
			}
			if body.CoreNetworkTunnel.TeID, body.CoreNetworkTunnel.TunnelIP, err = tunnelEnd("coreNetworkTunnel", core); err != nil {
				return err
			}
			return o.CreateAt(cmd.Context(), kinds.Session(), &body)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&access, "accessNetworkTunnel", "", "TEID:IP of the tunnel's end at the base station")
	fs.StringVar(&core, "coreNetworkTunnel", "", "TEID:IP of the tunnel's end at the user plane function")
	_ = cmd.MarkFlagRequired("accessNetworkTunnel")
	_ = cmd.MarkFlagRequired("coreNetworkTunnel")
	return cmd
}

// tunnelEnd parses TEID:IP.
func tunnelEnd(flag, text string) (teid uint32, addr string, err error) {
	number, addr, found := strings.Cut(text, ":")
	n, err := strconv.ParseUint(number, 10, 32)
	if !found || err != nil {
		return 0, "", fmt.Errorf("--%s %q is not TEID:IP (allowed: a TEID of 0 to 4294967295 and an IP address, as in 1:10.10.10.56)", flag, text)
	}
	return uint32(n), addr, nil
}

// errNoFlow refuses an empty list of addresses.
var errNoFlow = errors.New("--ulclArgs is empty: list the addresses, comma-separated")

func createSessionFlow(o *session.Options) *cobra.Command {
	var list []string
	cmd := &cobra.Command{
		Use:     "sessionulcl USER",
		Aliases: kinds.SessionFlow().Aliases,
		Short:   "Decapsulate a mobile user's packets to some addresses",
		Long: "Packets of a session to these addresses leave the GTP-U tunnel here, and are balanced or routed;\n" +
			"answers go into the tunnel of the base station, with the QoS flow of the address.",
		Example: "  loxicmd create sessionulcl user1 --ulclArgs=16:192.168.33.1\n  loxicmd create sessionulcl user1 --ulclArgs=16:192.168.33.1,9:192.168.33.2",
		Args:    session.Exactly("the name of a session, as in: loxicmd create sessionulcl user1 --ulclArgs=16:192.168.33.1"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var bodies []any
			for _, one := range list {
				number, addr, found := strings.Cut(one, ":")
				qfi, err := strconv.Atoi(number)
				if !found || err != nil {
					return fmt.Errorf("--ulclArgs %q is not QFI:IP (allowed: a QFI of 0 to 63 and an IP address, as in 16:192.168.33.1)", one)
				}
				bodies = append(bodies, &v1.SessionUlCl{UlclIdent: args[0], UlclArgument: v1.UlClArgument{Qfi: qfi, UlclIP: addr}})
			}
			switch len(bodies) {
			case 0:
				return errNoFlow
			case 1:
				return o.CreateAt(cmd.Context(), kinds.SessionFlow(), bodies[0])
			}
			return o.ApplyAt(cmd.Context(), kinds.SessionFlow(), bodies, false)
		},
	}
	cmd.Flags().StringSliceVar(&list, "ulclArgs", nil, "QFI:IP of each address, comma-separated")
	_ = cmd.MarkFlagRequired("ulclArgs")
	return cmd
}

func deleteSessionFlow(o *session.Options) *cobra.Command {
	var list []string
	cmd := &cobra.Command{
		Use:     "sessionulcl USER",
		Aliases: kinds.SessionFlow().Aliases,
		Short:   "Leave packets of a mobile user to some addresses in their tunnel",
		Example: "  loxicmd delete sessionulcl user1 --ulclArgs=192.168.33.1",
		Args:    session.Exactly("the name of a session, as in: loxicmd delete sessionulcl user1 --ulclArgs=192.168.33.1"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch len(list) {
			case 0:
				return errNoFlow
			case 1:
				return o.Change(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
					return session.DeleteAt(ctx, c, kinds.SessionFlow(), args[0]+"/"+list[0], nil)
				})
			}
			var bodies []any
			for _, addr := range list {
				bodies = append(bodies, &v1.SessionUlCl{UlclIdent: args[0], UlclArgument: v1.UlClArgument{UlclIP: addr}})
			}
			return o.ApplyAt(cmd.Context(), kinds.SessionFlow(), bodies, true)
		},
	}
	cmd.Flags().StringSliceVar(&list, "ulclArgs", nil, "IP of each address, comma-separated")
	_ = cmd.MarkFlagRequired("ulclArgs")
	return cmd
}

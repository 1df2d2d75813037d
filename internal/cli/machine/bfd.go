package machine

import (
	"cmp"
	"context"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
	"loxilb/internal/kinds"
	"loxilb/internal/lb/netobj"
)

// setBFD changes a session. The server replaces whole sessions, so the command first reads the
// other settings.
func setBFD(o *session.Options) *cobra.Command {
	k := kinds.BFD()
	cmd := &cobra.Command{
		Use:     "bfd REMOTE",
		Aliases: k.Aliases,
		Short:   "Change a BFD session with another node; settings without a flag stay unchanged",
		Example: "  loxicmd set bfd 10.0.0.2 --interval=100000\n  loxicmd set bfd 10.0.0.2 --preempt",
		Args:    session.Exactly("the address of the other node, as in: loxicmd set bfd 10.0.0.2 --interval=100000"),
	}
	given := session.AddFlags(cmd, k.CLI.Flags)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var named v1.BfdSession
		if err := given(&named); err != nil {
			return err
		}
		body, err := findBFD(cmd.Context(), o, args[0], named.Instance)
		if err != nil {
			return err
		}
		if err := given(body); err != nil {
			return err
		}
		return o.CreateAt(cmd.Context(), k, body)
	}
	return cmd
}

// findBFD returns a session as a POST body.
func findBFD(ctx context.Context, o *session.Options, remote, instance string) (*v1.BfdSession, error) {
	client, err := o.Client()
	if err != nil {
		return nil, err
	}
	answer, err := o.Answer(session.ListAt(ctx, client, kinds.BFD()))
	if err != nil {
		return nil, err
	}
	var list v1.BfdSessionList
	if err := session.Decode(answer, &list); err != nil {
		return nil, err
	}
	name := kinds.BFD().CLI.Name
	want := name(&v1.BfdSession{RemoteIp: remote, Instance: instance})
	for i := range list.Attr {
		if s := &list.Attr[i]; name(s) == want {
			return &v1.BfdSession{
				Instance: s.Instance, RemoteIp: s.RemoteIp, Interval: s.Interval, RetryCount: s.RetryCount,
				Multihop: s.Multihop, Priority: s.Priority, Preempt: s.Preempt,
			}, nil
		}
	}
	return nil, session.Refused("no BFD session with %s in instance %s", remote, cmp.Or(instance, "default"))
}

func deleteBFD(o *session.Options) *cobra.Command {
	var instance string
	cmd := &cobra.Command{
		Use:     "bfd REMOTE",
		Aliases: kinds.BFD().Aliases,
		Short:   "Delete a BFD session with another node; the role of this node stays as it is",
		Example: "  loxicmd delete bfd 10.0.0.2",
		Args:    session.Exactly("the address of the other node, as in: loxicmd delete bfd 10.0.0.2"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.Change(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				if _, err := netobj.ParsePeerAddr("REMOTE", args[0]); err != nil {
					return nil, err
				}
				return session.DeleteAt(ctx, c, kinds.BFD(), args[0], url.Values{"instance": {instance}})
			})
		},
	}
	cmd.Flags().StringVar(&instance, "instance", "default", "instance of the session")
	return cmd
}

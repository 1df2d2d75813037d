package machine

import (
	"context"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
	"loxilb/internal/kinds"
)

const instanceFlag = "instance of the session"

// setBFD changes a session. The server replaces a session as a whole, so the rest of it is read
// first.
func setBFD(o *session.Options) *cobra.Command {
	var instance string
	var interval int64
	var retries, priority int
	var preempt bool
	cmd := &cobra.Command{
		Use:     "bfd REMOTE",
		Aliases: kinds.BFD().Aliases,
		Short:   "Change a BFD session with another node",
		Example: "  loxicmd set bfd 10.0.0.2 --interval=100000\n  loxicmd set bfd 10.0.0.2 --preempt",
		Args:    session.Exactly("the address of the other node, as in: loxicmd set bfd 10.0.0.2 --interval=100000"),
		RunE: func(cmd *cobra.Command, args []string) error {
			body, err := findBFD(cmd.Context(), o, args[0], instance)
			if err != nil {
				return err
			}
			if interval != 0 {
				body.Interval = interval
			}
			if retries != 0 {
				body.RetryCount = retries
			}
			if priority != 0 {
				body.Priority = priority
			}
			if cmd.Flags().Changed("preempt") {
				body.Preempt = preempt
			}
			return o.CreateAt(cmd.Context(), kinds.BFD(), body)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&instance, "instance", "default", instanceFlag)
	fs.Int64Var(&interval, "interval", 0, "microseconds between packets, at least 100000 (default: as it is)")
	fs.IntVar(&retries, "retryCount", 0, "packets that may be missing before the peer is down (default: as it is)")
	fs.IntVar(&priority, "priority", 0, "1 to 255: of two nodes that start together, the higher one becomes MASTER (default: as it is)")
	fs.BoolVar(&preempt, "preempt", false, "take over from a MASTER of lower priority (default: as it is)")
	return cmd
}

// findBFD returns a session as POST takes it.
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
				Instance: s.Instance, RemoteIp: s.RemoteIp, SourceIp: s.SourceIp, Interval: s.Interval, RetryCount: s.RetryCount,
				Multihop: s.Multihop, Priority: s.Priority, Preempt: s.Preempt,
			}, nil
		}
	}
	return nil, session.Refused("there is no BFD session with %s in instance %s", remote, instance)
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
				return session.DeleteAt(ctx, c, kinds.BFD(), args[0], url.Values{"instance": {instance}})
			})
		},
	}
	cmd.Flags().StringVar(&instance, "instance", "default", instanceFlag)
	return cmd
}

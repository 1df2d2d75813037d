package machine

import (
	"context"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
	"loxilb/internal/kinds"
	"loxilb/internal/lb"
)

func hastateKind() session.Kind[v1.InstanceStateList, v1.InstanceState] {
	return session.Kind[v1.InstanceStateList, v1.InstanceState]{
		Word: "hastate", Aliases: kinds.Instance().Aliases,
		GetHelp:      session.Help{Short: "Show the role of this node in each instance: MASTER, BACKUP, ...", Example: "  loxicmd get hastate"},
		DescribeHelp: session.Help{Short: "Show the role of this node in an instance in full, with its status and events", Example: "  loxicmd describe hastate"},
		Key:          "Attr", Object: "instance", Fetch: (*v1.Client).GetInstanceStates,
		Items: func(l *v1.InstanceStateList) *[]v1.InstanceState { return &l.Attr },
		Name:  func(d *v1.InstanceState) string { return d.Instance },
		Draw: func(list *v1.InstanceStateList) *session.Table {
			t := session.NewTable("Instance", "HAState")
			for _, i := range list.Attr {
				t.Add(i.Instance, i.State)
			}
			return t
		},
	}
}

func setHastate(o *session.Options) *cobra.Command {
	var state v1.InstanceState
	var lease time.Duration
	cmd := &cobra.Command{
		Use:     "hastate STATE",
		Aliases: kinds.Instance().Aliases,
		Short:   "Set the role of this node in an instance: MASTER, BACKUP, FAULT, STOP or NOT_DEFINED",
		Long: "Sets the role of this node for the services of an instance, like a notify script of keepalived.\n" +
			"A MASTER or NOT_DEFINED node answers for the VIPs and announces them. A BACKUP, FAULT or STOP\n" +
			"node does not answer for them, but keeps forwarding connections that reach it. The role survives\n" +
			"restarts of the daemon. After a reboot, a MASTER is BACKUP until the role is set again. With\n" +
			"--lease, so does a MASTER whose daemon is down for that time: its kernel stops answering.",
		Example: "  loxicmd set hastate MASTER\n  loxicmd set hastate MASTER --lease=30s\n  loxicmd set hastate BACKUP --instance=llb-inst1",
		Args:    session.Exactly("the state, as in: loxicmd set hastate MASTER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			role, err := lb.ParseRole(args[0])
			if err != nil {
				return err
			}
			state.State = string(role)
			if err := (&lb.Instance{Role: role, Lease: lease}).Validate(); err != nil {
				return err
			}
			state.LeaseSeconds = int(lease / time.Second)
			return o.Change(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.SetInstanceState(ctx, state)
			})
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&state.Instance, "instance", lb.DefaultInstance, "instance: the part of a service's name after its last colon; services without one belong to "+lb.DefaultInstance)
	fs.StringVar(&state.Vip, "vip", "", "address of the cluster that endpoints see instead of the VIP in mode fullnat (default none)")
	session.DurationVar(fs, &lease, "lease", "", 0, "how long this node stays MASTER while its daemon does not run, 5s to 3600s; 0: until it reboots")
	return cmd
}

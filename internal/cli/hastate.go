package cli

import (
	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
)

func hastateAliases() []string { return []string{"ha", "HAstate"} }

func getHastate(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "hastate",
		Aliases: hastateAliases(),
		Short:   "show what this node is for the services of each instance: MASTER, BACKUP, ...",
		Example: "  loxicmd get hastate",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := o.client()
			if err != nil {
				return err
			}
			body, err := o.answer(client.GetInstanceStates(cmd.Context()))
			if err != nil {
				return err
			}
			if o.output == "json" || o.output == "yaml" {
				return o.printRaw(body)
			}
			var list v1.InstanceStateList
			if err := decode(body, &list); err != nil {
				return err
			}
			t := newTable("Instance", "HAState")
			for _, i := range list.Attr {
				t.add(i.Instance, i.State)
			}
			return o.print(t.String())
		},
	}
}

func setHastate(o *options) *cobra.Command {
	var state v1.InstanceState
	cmd := &cobra.Command{
		Use:     "hastate STATE",
		Aliases: hastateAliases(),
		Short:   "say what this node is for the services of an instance: MASTER, BACKUP, FAULT, STOP or NOT_DEFINED",
		Long: "Says what this node is for the services of an instance, as a notify script of keepalived does. A node that is\n" +
			"BACKUP, FAULT or STOP answers for none of their VIPs; connections that reach it go on. One that is MASTER, or\n" +
			"NOT_DEFINED, does, and announces them. It holds over restarts of the daemon; after one of the machine a MASTER\n" +
			"is BACKUP until it is said again.",
		Example: "  loxicmd set hastate MASTER\n  loxicmd set hastate BACKUP --instance=llb-inst1",
		Args:    exactly("the state, as in: loxicmd set hastate MASTER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			role, err := lb.ParseRole(args[0])
			if err != nil {
				return err
			}
			state.State = string(role)
			client, err := o.client()
			if err != nil {
				return err
			}
			body, err := o.answer(client.SetInstanceState(cmd.Context(), state))
			if err != nil {
				return err
			}
			return o.done(body)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&state.Instance, "instance", lb.DefaultInstance, "instance: what stands behind the last colon of services' names; services without are of "+lb.DefaultInstance)
	fs.StringVar(&state.Vip, "vip", "", "address of the cluster that endpoints see in mode fullnat in place of VIPs; without, none")
	return cmd
}

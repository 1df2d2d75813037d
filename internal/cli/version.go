package cli

import (
	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
)

func versionCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "show the version of loxicmd (that of the server: get lbversion)",
		Example: "  loxicmd version",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return o.print("loxicmd " + o.env.Version + "\n")
		},
	}
}

func getVersion(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "lbversion",
		Aliases: []string{"llbversion", "LBversion", "LBVersion"},
		Short:   "show the version of the server; -o wide shows its network namespace",
		Example: "  loxicmd get lbversion -o wide",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := o.client()
			if err != nil {
				return err
			}
			body, err := o.answer(client.GetVersion(cmd.Context()))
			if err != nil {
				return err
			}
			if o.output == "json" || o.output == "yaml" {
				return o.printRaw(body)
			}
			var v v1.Version
			if err := decode(body, &v); err != nil {
				return err
			}
			t := newTable("LoxiLB Version", "LoxiLB Build Info")
			if o.output == "wide" {
				t = newTable("LoxiLB Version", "LoxiLB Build Info", "Namespace")
			}
			t.add([]string{v.Version, v.BuildInfo, v.Namespace}[:len(t.header)]...)
			return o.print(t.String())
		},
	}
}

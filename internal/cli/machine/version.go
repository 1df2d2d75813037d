package machine

import (
	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
)

func versionCommand(o *session.Options) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "show the version of loxicmd (that of the server: get lbversion)",
		Example: "  loxicmd version",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return o.Print("loxicmd " + o.Env.Version + "\n")
		},
	}
}

func getVersion(o *session.Options) *cobra.Command {
	return &cobra.Command{
		Use:     "lbversion",
		Aliases: []string{"llbversion", "LBversion", "LBVersion"},
		Short:   "show the version of the server; -o wide shows its network namespace",
		Example: "  loxicmd get lbversion -o wide",
		Args:    cobra.NoArgs,
		RunE: session.Show(o, (*v1.Client).GetVersion, func(v *v1.Version) *session.Table {
			t := session.NewTable("LoxiLB Version", "LoxiLB Build Info")
			if o.Output == "wide" {
				t = session.NewTable("LoxiLB Version", "LoxiLB Build Info", "Namespace")
			}
			t.Add([]string{v.Version, v.BuildInfo, v.Namespace}[:t.Columns()]...)
			return t
		}),
	}
}

package machine

import (
	"encoding/json"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
)

func versionCommand(o *session.Options) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Show the version of loxicmd, its commit and Go (of the server: get lbversion)",
		Example: "  loxicmd version\n  loxicmd version -o json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if !o.IsRaw() {
				return o.Print("loxicmd " + o.Env.Build.Version + "\n" + o.Env.Build.Lines())
			}
			body, err := json.Marshal(o.Env.Build)
			if err != nil {
				return err
			}
			return o.PrintRaw(body)
		},
	}
}

func getVersion(o *session.Options) *cobra.Command {
	return &cobra.Command{
		Use:     "lbversion",
		Aliases: []string{"llbversion", "LBversion", "LBVersion"},
		Short:   "Show the version of the server; -o wide shows its network namespace and BPF ABI",
		Example: "  loxicmd get lbversion -o wide",
		Args:    cobra.NoArgs,
		RunE: session.Show(o, (*v1.Client).GetVersion, func(v *v1.Version) *session.Table {
			t := session.NewTable("LoxiLB Version", "LoxiLB Build Info")
			if o.Output == "wide" {
				t = session.NewTable("LoxiLB Version", "LoxiLB Build Info", "Namespace", "Object ABI")
			}
			t.Add([]string{v.Version, v.BuildInfo, v.Namespace, v.ObjectABI}[:t.Columns()]...)
			return t
		}),
	}
}

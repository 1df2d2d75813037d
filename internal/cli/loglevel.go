package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
)

// logLevels are the contract's words. Servers of the contract say nothing of one that they do not know.
func logLevels() []string {
	return []string{"trace", "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}
}

func getLogLevel(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "log-level",
		Aliases: []string{"loglevel"},
		Short:   "show the level of the server's log",
		Example: "  loxicmd get log-level",
		Args:    cobra.NoArgs,
		RunE: show(o, (*v1.Client).GetParams, func(p *v1.Params) *table {
			t := newTable("Param Name", "Value")
			t.add("Log level", p.LogLevel)
			return t
		}),
	}
}

func setLogLevel(o *options) *cobra.Command {
	return &cobra.Command{
		Use:       "log-level LEVEL",
		Aliases:   []string{"loglevel"},
		Short:     "change the level of the server's log until it ends",
		Example:   "  loxicmd set log-level debug",
		ValidArgs: logLevels(),
		Args:      exactly("the level, as in: loxicmd set log-level debug"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(logLevels(), args[0]) {
				return fmt.Errorf("log-level %q is none of %s", args[0], strings.Join(logLevels(), ", "))
			}
			client, err := o.client()
			if err != nil {
				return err
			}
			body, err := o.answer(client.SetParams(cmd.Context(), v1.Params{LogLevel: args[0]}))
			if err != nil {
				return err
			}
			return o.done(body)
		},
	}
}

package machine

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
)

// logLevels returns the existing loxilb's levels. Its servers do not report unknown ones.
func logLevels() []string {
	return []string{"trace", "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}
}

func getLogLevel(o *session.Options) *cobra.Command {
	return &cobra.Command{
		Use:     "log-level",
		Aliases: []string{"loglevel"},
		Short:   "Show the log level of the server",
		Example: "  loxicmd get log-level",
		Args:    cobra.NoArgs,
		RunE: session.Show(o, (*v1.Client).GetParams, func(p *v1.Params) *session.Table {
			t := session.NewTable("Param Name", "Value")
			t.Add("Log level", p.LogLevel)
			return t
		}),
	}
}

func setLogLevel(o *session.Options) *cobra.Command {
	return &cobra.Command{
		Use:       "log-level LEVEL",
		Aliases:   []string{"loglevel"},
		Short:     "Change the log level of the server until it restarts",
		Example:   "  loxicmd set log-level debug",
		ValidArgs: logLevels(),
		Args:      session.Exactly("the level, as in: loxicmd set log-level debug"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(logLevels(), args[0]) {
				return fmt.Errorf("log level %q is unknown (allowed: %s)", args[0], strings.Join(logLevels(), ", "))
			}
			return o.Change(cmd.Context(), func(ctx context.Context, c *v1.Client) (*http.Response, error) {
				return c.SetParams(ctx, v1.Params{LogLevel: args[0]})
			})
		},
	}
}

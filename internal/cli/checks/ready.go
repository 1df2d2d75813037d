package checks

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"loxilb/internal/cli/session"
)

func readyCommand(o *session.Options) *cobra.Command {
	return &cobra.Command{
		Use:   "ready",
		Short: "Report by the exit code whether packets are balanced",
		Long: "ready asks the daemon whether its start is over and packets are balanced, as health checks of containers do: GET /readyz.\n\n" +
			"It exits with 0 when they are, 1 when they are not (why is on standard error), 3 when the daemon does not answer.",
		Example: "  loxicmd ready",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := o.Client()
			if err != nil {
				return err
			}
			at, err := url.JoinPath(client.Server, "../../readyz")
			if err != nil {
				return err
			}
			r, err := http.NewRequestWithContext(cmd.Context(), http.MethodGet, at, nil)
			if err != nil {
				return err
			}
			body, err := o.Answer(client.Client.Do(r))
			if why := strings.TrimSpace(string(body)); err != nil && why != "" {
				return session.Refused("%s", why)
			}
			if err != nil {
				return err
			}
			return o.Print(string(body))
		},
	}
}

package diagnose

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
		Long: "Checks whether the daemon has started and balances packets, for health checks of containers (GET\n" +
			"/readyz).\n\n" +
			"Exits with 0 when it is ready, 1 when it is not (the reason is on standard error), 3 when the\n" +
			"daemon does not answer.",
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

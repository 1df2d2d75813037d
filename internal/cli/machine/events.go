package machine

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
)

func getEvents(o *session.Options) *cobra.Command {
	params := &v1.GetEventsParams{}
	var watch bool
	cmd := &cobra.Command{
		Use:     "events",
		Aliases: []string{"event"},
		Short:   "Show events, one per line; -w follows them",
		Example: "  loxicmd get events --kind=object,link --limit=20\n  loxicmd get events -w",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := session.AtLeast(0, "limit", params.Limit); err != nil {
				return err
			}
			if watch && params.Limit > 0 {
				return errors.New("--limit cannot be combined with --watch")
			}
			if watch {
				return watchEvents(cmd.Context(), o, params)
			}
			client, err := o.Client()
			if err != nil {
				return err
			}
			resp, err := client.GetEvents(cmd.Context(), params)
			if o.IsRaw() {
				return o.PrintList(resp, err, "eventAttr", nil)
			}
			_, err = o.EachOf(resp, err, "eventAttr", eventPrinter(o))
			return err
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVarP(&watch, "watch", "w", false, "show new events until interrupted")
	fs.StringVar(&params.Kind, "kind", "", "show only events of these kinds, comma-separated: "+strings.Join(eventKinds(), ", "))
	_ = cmd.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(eventKinds(), cobra.ShellCompDirectiveNoFileComp)) // fails only for unknown flags
	fs.StringVar(&params.Object, "object", "", "show only events about this object, such as: service 20.20.20.1:2020/tcp")
	fs.IntVar(&params.Limit, "limit", 0, "show only the last N; 0 shows all that the server keeps")
	return cmd
}

// eventKinds returns the kinds of events, as package event has them.
func eventKinds() []string {
	return []string{"link", "address", "route", "neighbour", "health", "object", "pressure", "revision", "vip", "node", "peer", "store"}
}

// eventPrinter prints one event in a line.
func eventPrinter(o *session.Options) func(json.RawMessage) error {
	return func(item json.RawMessage) error {
		if o.Output == "json" {
			return o.Print(string(item) + "\n")
		}
		var e v1.Event
		if err := session.Decode(item, &e); err != nil {
			return err
		}
		return o.Print(session.EventLine(&e))
	}
}

func watchEvents(ctx context.Context, o *session.Options, params *v1.GetEventsParams) error {
	return o.Follow(ctx, func(client *v1.Client, asStream v1.RequestEditorFn) (*http.Response, error) {
		return client.GetEvents(ctx, params, asStream)
	}, eventPrinter(o))
}

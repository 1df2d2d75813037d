package connections

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
)

// watchConntracks prints events of connections until interrupted.
func watchConntracks(ctx context.Context, o *session.Options, params *v1.WatchConntracksParams) error {
	return o.Follow(ctx, func(client *v1.Client, asStream v1.RequestEditorFn) (*http.Response, error) {
		return client.WatchConntracks(ctx, params, asStream)
	}, func(item json.RawMessage) error {
		if o.Output == "json" {
			return o.Print(string(item) + "\n")
		}
		var e v1.ConntrackEvent
		if err := session.Decode(item, &e); err != nil {
			return err
		}
		return o.Print(conntrackEventLine(&e))
	})
}

func conntrackEventLine(e *v1.ConntrackEvent) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %-7s  %-4s  %s > %s  %s", e.Time.Format(time.RFC3339Nano), e.Act, e.Protocol, e.Client, e.Vip, e.Endpoint)
	if e.Source != e.Client {
		fmt.Fprintf(&b, " from %s", e.Source)
	}
	fmt.Fprintf(&b, "  %s", e.ServName)
	if e.Reason != "" {
		fmt.Fprintf(&b, "  %s", e.Reason)
	}
	if e.ClosedBy != "" {
		fmt.Fprintf(&b, " by %s", e.ClosedBy)
	}
	if e.Reason != "" {
		fmt.Fprintf(&b, "  in %d packets, %d bytes  out %d packets, %d bytes", e.PacketsIn, e.BytesIn, e.PacketsOut, e.BytesOut)
	}
	if e.OneOf > 1 {
		fmt.Fprintf(&b, "  (sampled 1 of %d connections)", e.OneOf)
	}
	return b.String() + "\n"
}

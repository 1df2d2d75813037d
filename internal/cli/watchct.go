package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	v1 "loxilb/api/v1"
)

// watchConntracks prints what becomes of connections until interrupted.
func (o *options) watchConntracks(ctx context.Context, params *v1.WatchConntracksParams) error {
	o.idle = max(o.wait(), streamIdle)
	client, err := o.client()
	if err != nil {
		return err
	}
	resp, err := client.WatchConntracks(ctx, params, func(_ context.Context, r *http.Request) error {
		r.Header.Set("Accept", "text/event-stream")
		return nil
	})
	if err != nil {
		return &failure{ExitUnreachable, o.unreachable(err)}
	}
	return o.follow(ctx, resp, o.printConntrackEvent)
}

func (o *options) printConntrackEvent(item json.RawMessage) error {
	if o.output == "json" {
		return o.print(string(item) + "\n")
	}
	var e v1.ConntrackEvent
	if err := decode(item, &e); err != nil {
		return err
	}
	return o.print(conntrackEventLine(&e))
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
		fmt.Fprintf(&b, "  (one connection of %d)", e.OneOf)
	}
	return b.String() + "\n"
}

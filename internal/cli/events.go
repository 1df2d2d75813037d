package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
)

// streamIdle is how long a stream of events may be silent: the server sends a line every 15 s.
const streamIdle = 45 * time.Second

func getEvents(o *options) *cobra.Command {
	params := &v1.GetEventsParams{}
	var watch bool
	cmd := &cobra.Command{
		Use:     "events",
		Aliases: []string{"event"},
		Short:   "show what happened, a line each; -w goes on showing what happens",
		Example: "  loxicmd get events --kind=object,link --limit=20\n  loxicmd get events -w",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if params.Limit < 0 {
				return fmt.Errorf("--limit is 0 or more")
			}
			if watch && params.Limit > 0 {
				return errors.New("--limit stands beside --watch, which does not end by itself")
			}
			if watch {
				return o.watchEvents(cmd.Context(), params)
			}
			client, err := o.client()
			if err != nil {
				return err
			}
			resp, err := client.GetEvents(cmd.Context(), params)
			if o.output == "json" || o.output == "yaml" {
				list := &rawList{o: o, key: "eventAttr"}
				if err := o.eachOf(resp, err, "eventAttr", list.add); err != nil {
					return err
				}
				return list.end()
			}
			return o.eachOf(resp, err, "eventAttr", o.printEvent)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVarP(&watch, "watch", "w", false, "show what happens from now on, until interrupted")
	fs.StringVar(&params.Kind, "kind", "", "only events of these kinds: link, address, route, neighbour, health, object, peer, pressure; several with commas")
	fs.StringVar(&params.Object, "object", "", "only events about this object, as in: service 20.20.20.1:2020/tcp")
	fs.IntVar(&params.Limit, "limit", 0, "only so many, the last ones; 0 is all that the server has kept")
	return cmd
}

// printEvent prints one event in a line.
func (o *options) printEvent(item json.RawMessage) error {
	if o.output == "json" {
		return o.print(string(item) + "\n")
	}
	var e v1.Event
	if err := decode(item, &e); err != nil {
		return err
	}
	return o.print(eventLine(&e))
}

func eventLine(e *v1.Event) string {
	return fmt.Sprintf("%s  %-9s  %s\n", e.Time.Format(time.RFC3339), e.Kind, e.Message)
}

func (o *options) watchEvents(ctx context.Context, params *v1.GetEventsParams) error {
	o.idle = max(o.wait(), streamIdle)
	client, err := o.client()
	if err != nil {
		return err
	}
	resp, err := client.GetEvents(ctx, params, func(_ context.Context, r *http.Request) error {
		r.Header.Set("Accept", "text/event-stream")
		return nil
	})
	if err != nil {
		return &failure{ExitUnreachable, o.unreachable(err)}
	}
	return o.follow(ctx, resp, o.printEvent)
}

// follow prints server-sent events until interrupted.
func (o *options) follow(ctx context.Context, resp *http.Response, show func(json.RawMessage) error) error {
	if resp.StatusCode/100 != 2 {
		_, err := o.answer(resp, nil)
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // it is only read
	if err := o.readEvents(resp.Body, show); ctx.Err() == nil {
		return err
	}
	return nil // it was interrupted, which is how it ends
}

// readEvents prints server-sent events until there are no more.
func (o *options) readEvents(body io.Reader, show func(json.RawMessage) error) error {
	lines := bufio.NewScanner(body)
	var name string
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case field == "event":
			name = value
		case field == "data" && name == "lost":
			var l struct{ Lost uint64 }
			if err := decode([]byte(value), &l); err != nil {
				return err
			}
			fmt.Fprintf(o.env.Stderr, "%d events were lost: they came faster than they were read\n", l.Lost)
		case field == "data" && name == "untold":
			var u struct{ Sampled, Lost uint64 }
			if err := decode([]byte(value), &u); err != nil {
				return err
			}
			fmt.Fprintf(o.env.Stderr, "%d events of connections that were left out, and %d more, were not told: they came faster than they were read\n", u.Sampled, u.Lost)
		case field == "data":
			if err := show(json.RawMessage(value)); err != nil {
				return err
			}
		}
	}
	err := lines.Err()
	if err == nil {
		err = errors.New("the server closed the connection")
	}
	return &failure{ExitUnreachable, fmt.Errorf("the events ended: %w", err)}
}

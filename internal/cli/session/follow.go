package session

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

	v1 "loxilb/api/v1"
)

// streamIdle is how long a stream of events may be silent: the server sends a line every 15 s.
const streamIdle = 45 * time.Second

// maxEvent is how long an event may be: one of rates has a page of services.
const maxEvent = 16 << 20

// Follow asks for server-sent events, and shows each until interrupted.
func (o *Options) Follow(ctx context.Context, ask func(*v1.Client, v1.RequestEditorFn) (*http.Response, error), show func(json.RawMessage) error) error {
	o.idle = max(o.wait(), streamIdle)
	client, err := o.Client()
	if err != nil {
		return err
	}
	resp, err := ask(client, func(_ context.Context, r *http.Request) error {
		r.Header.Set("Accept", "text/event-stream")
		return nil
	})
	if err != nil {
		return o.unreachable(err)
	}
	if resp.StatusCode/100 != 2 {
		_, err := o.Answer(resp, nil)
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // it is only read
	if err := o.readEvents(resp.Body, show); ctx.Err() == nil {
		return err
	}
	return nil // it was interrupted, which is how it ends
}

// readEvents prints server-sent events until there are no more.
func (o *Options) readEvents(body io.Reader, show func(json.RawMessage) error) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxEvent)
	var name string
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case field == "event":
			name = value
		case field == "data" && name == "lost":
			var l struct{ Lost uint64 }
			if err := Decode([]byte(value), &l); err != nil {
				return err
			}
			fmt.Fprintf(o.Env.Stderr, "%d events lost: the reader is too slow\n", l.Lost)
		case field == "data" && name == "untold":
			var u struct{ Sampled, Lost uint64 }
			if err := Decode([]byte(value), &u); err != nil {
				return err
			}
			fmt.Fprintf(o.Env.Stderr, "%d events not shown because of sampling, and %d lost: the reader is too slow\n", u.Sampled, u.Lost)
		case field == "data" && name == "end":
			var m v1.Message
			if err := Decode([]byte(value), &m); err != nil {
				return err
			}
			return &Failure{ExitUnreachable, fmt.Errorf("the event stream ended: %s", m.Message)}
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
	return &Failure{ExitUnreachable, fmt.Errorf("the event stream ended: %w", err)}
}

package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/event"
)

const (
	maxStreams = 64               // of events, at once
	heartbeat  = 15 * time.Second // of a stream without events
)

// GetEvents answers with what happened, or goes on telling what happens.
func (a *API) GetEvents(w http.ResponseWriter, r *http.Request, params v1.GetEventsParams) {
	f, p := newEventFilter(&params)
	if p != nil {
		p.write(w)
		return
	}
	if params.Limit > 0 || !strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		a.listEvents(w, f, params.Limit)
		return
	}
	select {
	case a.streams <- struct{}{}:
		defer func() { <-a.streams }()
	default:
		w.Header().Set("Retry-After", "30")
		refuse(http.StatusServiceUnavailable, "%d clients follow events already, and no more can: try again later, or ask with limit=N", maxStreams).write(w)
		return
	}
	after, p := a.lastEventID(r)
	if p != nil {
		p.write(w)
		return
	}
	ctx, cancel := a.untilClosing(r)
	defer cancel()
	a.newEventStream(w).follow(ctx, a.Events.SubscribeAfter(after, f.kinds...), f)
}

// untilClosing is the time in which a request that does not end by itself is answered.
func (a *API) untilClosing(r *http.Request) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(r.Context())
	stop := context.AfterFunc(a.closing, cancel)
	return ctx, func() { stop(); cancel() }
}

type eventFilter struct {
	kinds  []event.Kind // none: all
	object string       // "": any
}

func newEventFilter(params *v1.GetEventsParams) (f eventFilter, p *problem) {
	if params.Limit < 0 {
		return f, refuseField(http.StatusBadRequest, "limit", strconv.Itoa(params.Limit), "is negative", "0 (no limit) or more")
	}
	if params.Kind != "" {
		for word := range strings.SplitSeq(params.Kind, ",") {
			kind := event.Kind(word)
			if !slices.Contains(event.Kinds(), kind) {
				return f, refuseField(http.StatusBadRequest, "kind", word, "is no kind of event", eventKinds())
			}
			f.kinds = append(f.kinds, kind)
		}
	}
	f.object = params.Object
	return f, nil
}

func eventKinds() string {
	var b strings.Builder
	for i, k := range event.Kinds() {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(k))
	}
	return b.String()
}

func (f *eventFilter) matches(e *event.Event) bool { return f.object == "" || f.object == e.Object() }

// lastEventID is the event after which to go on: that of the client's, or the last there is. A number that is still to
// come is one of another life of the daemon: all that is kept is new then.
func (a *API) lastEventID(r *http.Request) (uint64, *problem) {
	last := a.Events.Last()
	text := r.Header.Get("Last-Event-ID")
	if text == "" {
		return last, nil
	}
	id, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, refuseField(http.StatusBadRequest, "Last-Event-ID", text, "is not the number of an event", "the id that an event of this stream had")
	}
	if id > last {
		return 0, nil
	}
	return id, nil
}

// listEvents answers with the last events of those that are kept; limit 0 is all of them.
func (a *API) listEvents(w http.ResponseWriter, f eventFilter, limit int) {
	all := a.Events.SubscribeAfter(0, f.kinds...)
	var list []event.Event
	for newest := a.Events.Last(); ; { // what comes meanwhile is not waited for
		e, _, ok := all.Poll()
		if !ok || e.Seq > newest {
			break
		}
		if f.matches(&e) {
			list = append(list, e)
		}
	}
	if limit > 0 && len(list) > limit {
		list = list[len(list)-limit:]
	}
	out := newStream(w, "eventAttr")
	for i := range list {
		if !out.item(eventOf(&list[i])) {
			return
		}
	}
	out.end()
}

func eventOf(e *event.Event) v1.Event {
	return v1.Event{Seq: e.Seq, Time: e.Time, Kind: string(e.Kind()), Action: string(e.Act()), Object: e.Object(), Message: e.String()}
}

// eventStream writes server-sent events. What a client does not read waits in the hub, which all streams share, until
// newer events take its place; a client that does not read for long is cut off.
type eventStream struct {
	stall   time.Duration
	control *http.ResponseController
	buf     *bufio.Writer
	err     error
}

func (a *API) newEventStream(w http.ResponseWriter) *eventStream {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	return &eventStream{stall: a.stall, control: http.NewResponseController(w), buf: bufio.NewWriterSize(w, 4<<10)}
}

func (s *eventStream) follow(ctx context.Context, events *event.Subscription, f eventFilter) {
	s.flush() // the client learns that it is connected
	for s.err == nil {
		wait, cancel := context.WithTimeout(ctx, heartbeat)
		e, lost, err := events.Next(wait)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, context.DeadlineExceeded):
			s.print(": nothing happened\n\n")
			s.flush()
			continue
		}
		for ok := true; ok && s.err == nil; e, lost, ok = events.Poll() {
			s.write(&e, lost, f)
		}
		s.flush()
	}
}

func (s *eventStream) write(e *event.Event, lost uint64, f eventFilter) {
	if lost > 0 {
		s.print("event: lost\ndata: {\"lost\":%d}\n\n", lost)
	}
	if !f.matches(e) {
		return
	}
	data, err := json.Marshal(eventOf(e))
	if err != nil {
		s.err = err
		return
	}
	s.print("id: %d\nevent: %s\ndata: %s\n\n", e.Seq, e.Kind(), data)
}

func (s *eventStream) print(format string, args ...any) {
	if s.err == nil {
		s.extend() // the buffer may be written out now
		_, s.err = fmt.Fprintf(s.buf, format, args...)
	}
}

func (s *eventStream) flush() {
	if s.err != nil {
		return
	}
	s.extend()
	if s.err = s.buf.Flush(); s.err == nil {
		s.err = s.control.Flush()
	}
}

// extend gives the client time for the next part. Writers of tests have no deadline, and need none.
func (s *eventStream) extend() { _ = s.control.SetWriteDeadline(time.Now().Add(s.stall)) }

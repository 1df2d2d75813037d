package observation

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/event"
	"loxilb/internal/kinds"
)

// GetEvents replies with recent events, or streams events as they happen.
func (a *API) GetEvents(w http.ResponseWriter, r *http.Request, params v1.GetEventsParams) {
	p := rest.RefuseUnknownParameters(r, params)
	if p != nil {
		p.Write(w)
		return
	}
	f, p := newEventFilter(&params)
	if p != nil {
		p.Write(w)
		return
	}
	if params.Limit > 0 || !strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		a.listEvents(w, f, params.Limit)
		return
	}
	after, p := a.lastEventID(r)
	if p != nil {
		p.Write(w)
		return
	}
	a.Streams.Follow(w, r, func(ctx context.Context, s *rest.EventStream) {
		(&eventStream{s}).follow(ctx, a.Events.SubscribeAfter(after, f.kinds...), f)
	})
}

type eventFilter struct {
	kinds  []event.Kind // none: all
	object string       // "": any
}

func newEventFilter(params *v1.GetEventsParams) (f eventFilter, p *rest.Problem) {
	if params.Limit < 0 {
		return f, rest.RefuseField(http.StatusBadRequest, "limit", strconv.Itoa(params.Limit), "is negative", "0 (no limit) or more")
	}
	if params.Kind != "" {
		for word := range strings.SplitSeq(params.Kind, ",") {
			kind := event.Kind(word)
			if !slices.Contains(event.Kinds(), kind) {
				return f, rest.RefuseField(http.StatusBadRequest, "kind", word, "is not a kind of event", eventKinds())
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

// matches reports whether the filter selects an event. An event of an endpoint's health also
// belongs to the services that it names.
func (f *eventFilter) matches(e *event.Event) bool {
	if f.object == "" || f.object == e.Object() {
		return true
	}
	h, is := e.Body.(event.Health)
	key, service := strings.CutPrefix(f.object, kinds.ServiceName+" ")
	return is && service && slices.Contains(h.Services, key)
}

// lastEventID returns the event to continue after: the client's last one, or the newest. A number
// that does not exist yet comes from an earlier process; then all kept events are new.
func (a *API) lastEventID(r *http.Request) (uint64, *rest.Problem) {
	last := a.Events.Last()
	text := r.Header.Get("Last-Event-ID")
	if text == "" {
		return last, nil
	}
	id, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, rest.RefuseField(http.StatusBadRequest, "Last-Event-ID", text, "is not the number of an event", "the id of an earlier event of this stream")
	}
	if id > last {
		return 0, nil
	}
	return id, nil
}

// listEvents replies with the newest recorded events; limit 0 means all.
func (a *API) listEvents(w http.ResponseWriter, f eventFilter, limit int) {
	all := a.Events.SubscribeAfter(0, f.kinds...)
	var list []event.Event
	for newest := a.Events.Last(); ; { // later events are not waited for
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
	out := rest.NewList(w, "eventAttr")
	for i := range list {
		if !out.Item(eventOf(&list[i])) {
			return
		}
	}
	out.End()
}

func eventOf(e *event.Event) v1.Event {
	return v1.Event{Seq: e.Seq, Time: e.Time, Kind: string(e.Kind()), Action: string(e.Act()), Object: e.Object(), Message: e.String()}
}

// eventStream sends events. Unread events stay in the hub, which all streams share, until newer
// ones replace them.
type eventStream struct{ *rest.EventStream }

func (s *eventStream) follow(ctx context.Context, events *event.Subscription, f eventFilter) {
	s.Flush() // notifies the client that it is connected
	for s.Err() == nil {
		wait, cancel := context.WithTimeout(ctx, rest.Heartbeat)
		e, lost, err := events.Next(wait)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, context.DeadlineExceeded):
			s.Comment("nothing happened")
			s.Flush()
			continue
		}
		for ok := true; ok && s.Err() == nil; e, lost, ok = events.Poll() {
			s.write(&e, lost, f)
		}
		s.Flush()
	}
}

func (s *eventStream) write(e *event.Event, lost uint64, f eventFilter) {
	if lost > 0 {
		s.Lost(lost)
	}
	if !f.matches(e) {
		return
	}
	s.Print("id: %d\n", e.Seq)
	s.Event(string(e.Kind()), eventOf(e))
}

package rest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/access"
)

// Streams answers requests with streams, which last until the client disconnects.
type Streams struct {
	users     *access.Users
	Stall     time.Duration // how long a client may take for each part
	Followers *Shares       // of events
	closing   context.Context
	Close     context.CancelFunc // ends all streams
}

// NewStreams returns streams, which end with the token of their user.
func NewStreams(users *access.Users) *Streams {
	s := &Streams{users: users, Stall: stallLimit, Followers: NewShares(EventStreams())}
	s.closing, s.Close = context.WithCancel(context.Background())
	return s
}

// EventStreams returns the limits of the streams of events, rates and traces.
func EventStreams() ShareLimits {
	return ShareLimits{All: 64, Users: 48, User: 16, Verb: "follow events", Instead: "ask for a list"}
}

// Follow replies with the stream of events that write produces, unless there are too many streams.
// It returns when the request or the server ends.
func (a *Streams) Follow(w http.ResponseWriter, r *http.Request, write func(context.Context, *EventStream)) {
	who := PrincipalOf(r)
	if p := a.Followers.Enter(who); p != nil {
		w.Header().Set("Retry-After", "30")
		p.Write(w)
		return
	}
	defer a.Followers.Leave(who)
	ctx, cancel := a.WhileServed(r)
	defer cancel()
	s := NewEventStream(w, a.Stall)
	write(ctx, s)
	EndStream(ctx, s)
}

// errClosing ends streams when the daemon ends.
var errClosing = errors.New("loxilb ends")

// WhileServed returns a context that lasts until loxilb ends, the client leaves or the user loses
// the right to the request.
func (a *Streams) WhileServed(r *http.Request) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(r.Context())
	stop := context.AfterFunc(a.closing, func() { cancel(errClosing) })
	left := context.AfterFunc(clientOf(r), func() { cancel(context.Canceled) })
	done := func() { stop(); left(); cancel(context.Canceled) }
	if PrincipalOf(r).User == 0 {
		return ctx, done
	}
	allowed, end := a.users.ContextOf(ctx, TokenOf(r))
	return allowed, func() { end(); done() }
}

// EndStream sends the reason for the end of a stream, unless its client ended it.
func EndStream(ctx context.Context, s *EventStream) {
	why := context.Cause(ctx)
	if errors.Is(why, errClosing) || errors.Is(why, access.ErrEnded) {
		s.End(why.Error())
	}
}

// Heartbeat is the longest silence of a stream without events.
const Heartbeat = 15 * time.Second

// An EventStream writes server-sent events. A client that does not read for long is disconnected.
type EventStream struct {
	stall   time.Duration
	control *http.ResponseController
	buf     *bufio.Writer
	err     error
}

// NewEventStream starts a stream that ends if the client takes longer than stall for a part.
func NewEventStream(w http.ResponseWriter, stall time.Duration) *EventStream {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	return &EventStream{stall: stall, control: http.NewResponseController(w), buf: bufio.NewWriterSize(w, 4<<10)}
}

// Err returns the error that ended the stream: usually, the client does not read.
func (s *EventStream) Err() error { return s.err }

// Print appends text.
func (s *EventStream) Print(format string, args ...any) {
	if s.err == nil {
		s.extend() // the buffer may be written out now
		_, s.err = fmt.Fprintf(s.buf, format, args...)
	}
}

// Event appends an event with a JSON value.
func (s *EventStream) Event(name string, v any) {
	data, err := json.Marshal(v)
	if err != nil && s.err == nil {
		s.err = err
	}
	s.Print("event: %s\ndata: %s\n\n", name, data)
}

// Lost appends the number of lost events.
func (s *EventStream) Lost(n uint64) { s.Print("event: lost\ndata: {\"lost\":%d}\n\n", n) }

// End sends the reason for the end of the stream.
func (s *EventStream) End(why string) {
	s.Event("end", v1.Message{Message: why})
	s.Flush()
}

// Comment appends a comment, which clients ignore.
func (s *EventStream) Comment(text string) { s.Print(": %s\n\n", text) }

// Flush sends appended data.
func (s *EventStream) Flush() {
	if s.err != nil {
		return
	}
	s.extend()
	if s.err = s.buf.Flush(); s.err == nil {
		s.err = s.control.Flush()
	}
}

// extend extends the deadline for the next part. Writers of tests have none.
func (s *EventStream) extend() { _ = s.control.SetWriteDeadline(time.Now().Add(s.stall)) }

package rest

import (
	"context"
	"errors"
	"net/http"
	"time"

	"loxilb/internal/api/access"
)

// Streams answers requests that do not end by themselves.
type Streams struct {
	users     *access.Users
	Stall     time.Duration // how long a client may take for each part
	Followers *Shares       // of events
	closing   context.Context
	Close     context.CancelFunc // ends all of them
}

// NewStreams makes streams, which end with the token of their user.
func NewStreams(users *access.Users) *Streams {
	s := &Streams{users: users, Stall: stallLimit, Followers: NewShares(EventStreams())}
	s.closing, s.Close = context.WithCancel(context.Background())
	return s
}

// EventStreams returns the streams of events, rates and traces.
func EventStreams() ShareLimits {
	return ShareLimits{All: 64, Users: 48, User: 16, Verb: "follow events", Instead: "ask for a list"}
}

// Follow replies with the stream of events that tell writes, unless there are too many such
// streams. It returns when the request or the server ends.
func (a *Streams) Follow(w http.ResponseWriter, r *http.Request, tell func(context.Context, *EventStream)) {
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
	tell(ctx, s)
	EndStream(ctx, s)
}

// errClosing ends streams when the daemon ends.
var errClosing = errors.New("loxilb ends")

// WhileServed returns a context that lasts until loxilb ends or the user loses the right to the
// request.
func (a *Streams) WhileServed(r *http.Request) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(r.Context())
	stop := context.AfterFunc(a.closing, func() { cancel(errClosing) })
	done := func() { stop(); cancel(context.Canceled) }
	if PrincipalOf(r).User == 0 {
		return ctx, done
	}
	good, end := a.users.While(ctx, TokenOf(r))
	return good, func() { end(); done() }
}

// EndStream says why a stream ends, unless its client ended it.
func EndStream(ctx context.Context, s *EventStream) {
	why := context.Cause(ctx)
	if errors.Is(why, errClosing) || errors.Is(why, access.ErrEnded) {
		s.End(why.Error())
	}
}

package traffic

import (
	"net/http"
	"strconv"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/access"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/lb/report"
)

const (
	// WatchRate is the default number of events sent per second.
	WatchRate    = 10_000
	watchRateMax = 1_000_000
	// watchRateView is the highest rate of the role view: a rate reserves memory of the kernel, 34
	// MB for watchRateMax.
	watchRateView = 10_000
	// untoldEvery is the least interval of reports about omitted events to a client.
	untoldEvery = time.Second
)

// watches returns the streams of connections. The packet path has four places; one is left for the
// flow log.
func watches() rest.ShareLimits {
	return rest.ShareLimits{All: 3, Users: 2, User: 1, Verb: "watch connections", Instead: "ask for a list"}
}

// WatchConntracks streams events of connections.
func (a *API) WatchConntracks(w http.ResponseWriter, r *http.Request, params v1.WatchConntracksParams) {
	f, p := a.newFilter(&v1.GetConntracksParams{
		Protocol: params.Protocol, Vip: params.Vip, ServName: params.ServName, Service: params.Service, Source: params.Source, Endpoint: params.Endpoint,
	})
	rate := params.Rate
	if !r.URL.Query().Has("rate") {
		rate = WatchRate
	}
	who := rest.PrincipalOf(r)
	if p == nil {
		p = checkWatchRate(rate, who)
	}
	if p != nil {
		p.Write(w)
		return
	}
	if p := a.Watchers.Enter(who); p != nil {
		w.Header().Set("Retry-After", "30")
		p.Write(w)
		return
	}
	defer a.Watchers.Leave(who)
	ctx, cancel := a.Streams.WhileServed(r)
	defer cancel()
	s := &watchStream{filter: f, EventStream: rest.NewEventStream(w, a.Streams.Stall), last: time.Now()}
	if err := a.DataPath.WatchConnections(ctx, rate, s.send); err != nil && !s.begun {
		w.Header().Del("Cache-Control")
		w.Header().Set("Retry-After", "30")
		rest.Refuse(http.StatusServiceUnavailable, "the connections can't be watched: %v", err).Write(w)
	} else if err != nil {
		a.Log.Error("watching connections failed", "error", err)
	} else {
		rest.EndStream(ctx, s.EventStream)
	}
}

func checkWatchRate(rate int, who *rest.Principal) *rest.Problem {
	switch {
	case rate < 1 || rate > watchRateMax:
		return rest.RefuseField(http.StatusBadRequest, "rate", strconv.Itoa(rate), "is out of range", "1 to "+strconv.Itoa(watchRateMax)+" events a second")
	case who.Role < access.Operate && rate > watchRateView:
		return rest.RefuseField(http.StatusForbidden, "rate", strconv.Itoa(rate), "is more than the role "+who.Role.String()+" may ask for", "1 to "+strconv.Itoa(watchRateView)+" events a second")
	}
	return nil
}

// watchStream writes events of connections.
type watchStream struct {
	*rest.EventStream
	filter    filter
	begun     bool
	last      time.Time // when something was written
	omittedAt time.Time // when untold was
	omitted   report.Omitted
}

// send writes events. It returns false when the client has left.
func (s *watchStream) send(events []report.ConnectionEvent, omitted report.Omitted) bool {
	now, wrote := time.Now(), !s.begun
	s.begun = true
	for i := range events {
		if e := &events[i]; s.filter.matches(connectionOf(e)) {
			s.Event("connection", conntrackEventOf(e))
			wrote = true
		}
	}
	if omitted != s.omitted && now.Sub(s.omittedAt) >= untoldEvery {
		s.Print("event: untold\ndata: {\"sampled\":%d,\"lost\":%d}\n\n", omitted.Sampled-s.omitted.Sampled, omitted.Lost-s.omitted.Lost)
		s.omitted, s.omittedAt = omitted, now
		wrote = true
	}
	if !wrote && now.Sub(s.last) >= rest.Heartbeat {
		s.Comment("nothing happened")
		wrote = true
	}
	if wrote {
		s.Flush()
		s.last = now
	}
	return s.Err() == nil
}

// connectionOf returns the properties that the filter compares.
func connectionOf(e *report.ConnectionEvent) *report.Connection {
	return &report.Connection{Protocol: e.Protocol, Src: e.Client, Dst: e.VIP, Endpoint: e.Endpoint, Service: e.Service}
}

func conntrackEventOf(e *report.ConnectionEvent) v1.ConntrackEvent {
	out := v1.ConntrackEvent{
		Time: e.Time, Act: e.Act, Protocol: e.Protocol.String(), Client: e.Client.String(), Vip: e.VIP.String(), Source: e.Source.String(),
		Endpoint: e.Endpoint.String(), ServName: e.Service, Reason: e.Reason, ClosedBy: e.By,
	}
	if e.Reason != "" {
		out.PacketsIn, out.BytesIn, out.PacketsOut, out.BytesOut = e.In.Packets, e.In.Bytes, e.Out.Packets, e.Out.Bytes
	}
	if e.OneOf > 1 {
		out.OneOf = e.OneOf
	}
	return out
}

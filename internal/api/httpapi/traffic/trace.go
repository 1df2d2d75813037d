package traffic

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/httpapi/rest"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

const (
	traceCount, traceCountMax     = 10_000, 1_000_000
	traceSeconds, traceSecondsMax = 600, 86_400
	// lostEvery is the least interval of reports about lost packets to a client.
	lostEvery = time.Second
)

var errTimeOver = errors.New("the time of the trace is over")

// TracePackets streams packets while the data path handles them.
func (a *API) TracePackets(w http.ResponseWriter, r *http.Request, params v1.TracePacketsParams) {
	q, no := a.newTraceQuery(&params)
	if no != nil {
		no.Write(w)
		return
	}
	a.Streams.Follow(w, r, func(ctx context.Context, s *rest.EventStream) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		t := &packetStream{EventStream: s, query: q, names: a.Interfaces(), last: time.Now(), over: cancel}
		defer t.stop()
		err := a.DataPath.TracePackets(ctx, q.filter, t.send)
		var field *lb.FieldError
		switch {
		case errors.As(err, &field):
			rest.RefuseError(http.StatusBadRequest, field).Write(w)
		case err != nil && !t.begun:
			w.Header().Del("Cache-Control")
			w.Header().Set("Retry-After", "10")
			rest.RefuseError(http.StatusServiceUnavailable, fmt.Errorf("packets can't be traced: %w", err)).Write(w)
		case err != nil:
			a.Log.Error("tracing packets failed", "error", err)
		case errors.Is(context.Cause(ctx), errTimeOver):
			t.End("the time is over: \"seconds\" asks for more")
		}
	})
}

// packetStream writes traced packets.
type packetStream struct {
	*rest.EventStream
	query          *traceQuery
	names          map[int]string
	over           context.CancelCauseFunc // ends the trace
	timer          *time.Timer             // calls over
	begun          bool
	count          int
	last           time.Time // when something was written
	lostReportedAt time.Time // when a loss was last reported
	lost           uint64
}

// send writes packets. It returns false when the client has left, or has the count it asked for.
func (t *packetStream) send(list []report.PacketTrace, omitted report.Omitted) bool {
	now, wrote := time.Now(), !t.begun
	if !t.begun { // the time begins with the stream: exchanging the programs takes a while
		t.begun = true
		t.timer = time.AfterFunc(t.query.lasts, func() { t.over(errTimeOver) })
	}
	for i := range list {
		if t.count == t.query.count {
			break
		}
		t.write(&list[i])
		t.count++
		wrote = true
	}
	full := t.count == t.query.count
	if omitted.Lost != t.lost && (full || now.Sub(t.lostReportedAt) >= lostEvery) {
		t.Lost(omitted.Lost - t.lost)
		t.lost, t.lostReportedAt, wrote = omitted.Lost, now, true
	}
	if full {
		t.End("that many packets were shown: \"count\" asks for more")
		return false
	}
	if !wrote && now.Sub(t.last) >= rest.Heartbeat {
		t.Comment("no packet")
		wrote = true
	}
	if wrote {
		t.Flush()
		t.last = now
	}
	return t.Err() == nil
}

func (t *packetStream) stop() {
	if t.timer != nil {
		t.timer.Stop()
	}
}

func (t *packetStream) write(p *report.PacketTrace) {
	out := v1.PacketTrace{
		Time: p.Time, Took: int(p.Took.Nanoseconds()), Point: p.Point, In: t.name(p.In), Verdict: string(p.Verdict), Reason: p.Reason, Before: t.view(&p.Before),
	}
	if p.Out != 0 {
		out.Out = t.name(p.Out)
	}
	if len(p.After.Data) > 0 {
		after := t.view(&p.After)
		out.After = &after
	}
	t.Event("packet", out)
}

func (t *packetStream) view(v *report.PacketView) v1.PacketView {
	data := v.Data
	if !t.query.payload {
		data = data[:v.HeaderLength()]
	}
	return v1.PacketView{Layer3: v.Layer3, Length: v.Length, Segment: v.Segment, Data: data}
}

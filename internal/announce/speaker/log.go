package speaker

import (
	"context"
	"log/slog"
	"sync"

	gobgp "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// libraryHandler logs what gobgp logs. The speaker itself logs sessions that begin and end, so
// gobgp's records are one level lower: its information is debug output.
//
// gobgp reports why a session does not come up only in its log, so records about a neighbor are
// read as well, whatever the level.
type libraryHandler struct {
	slog.Handler
	problems *problems
	neighbor string // that all records are about
}

func libraryLog(log *slog.Logger, p *problems) *slog.Logger {
	return slog.New(libraryHandler{Handler: log.Handler(), problems: p})
}

// lowered returns the level at which a record of gobgp is logged. Its warnings are mostly refused
// connections, which are information to an operator.
func lowered(level slog.Level) slog.Level {
	switch {
	case level >= slog.LevelError:
		return slog.LevelWarn
	case level >= slog.LevelWarn:
		return slog.LevelInfo
	default:
		return slog.LevelDebug
	}
}

// Messages of gobgp that are no problems.
const (
	closedConnection = "Closed an accepted connection" // of a neighbor whose session pauses for 5 s after its end
	stoppedTwice     = "failed to stop BGP server"     // engine.stop has done so
)

func (h libraryHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.neighbor != "" || h.Handler.Enabled(ctx, lowered(level))
}

func (h libraryHandler) Handle(ctx context.Context, r slog.Record) error {
	if h.neighbor != "" {
		if problem := problemOf(&r); problem != "" {
			h.problems.set(h.neighbor, problem)
		}
	}
	level := lowered(r.Level)
	if r.Message == closedConnection || r.Message == stoppedTwice {
		level = slog.LevelDebug
	}
	if !h.Handler.Enabled(ctx, level) {
		return nil
	}
	record := slog.NewRecord(r.Time, level, "gobgp: "+r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		record.AddAttrs(a)
		return true
	})
	return h.Handler.Handle(ctx, record)
}

func (h libraryHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := h
	with.Handler = h.Handler.WithAttrs(attrs)
	for _, a := range attrs {
		if a.Key == "Key" {
			with.neighbor = a.Value.String()
		}
	}
	return with
}

func (h libraryHandler) WithGroup(name string) slog.Handler {
	with := h
	with.Handler = h.Handler.WithGroup(name)
	return with
}

// problemOf returns why a session does not come up or ends, if a record of gobgp contains the
// reason.
func problemOf(r *slog.Record) string {
	switch r.Message {
	case "failed to connect":
		return attr(r, "Error").String()
	case "sent notification":
		return "sent " + notification(r)
	case "received notification":
		return "received " + notification(r)
	case "outgoing connection IO error":
		return "connection closed: " + attr(r, "reason").String()
	}
	return ""
}

// notification describes a notification of RFC 4271 with the reason of RFC 9003.
func notification(r *slog.Record) string {
	code, sub := number(attr(r, "Code")), number(attr(r, "Subcode"))
	text := "notification " + gobgp.NewNotificationErrorCode(code, sub).String()
	if reason := attr(r, "Communicated-Reason").String(); reason != "" && reason != "<nil>" {
		text += ": " + reason
	}
	return text
}

func number(v slog.Value) uint8 {
	if v.Kind() != slog.KindInt64 {
		return 0
	}
	return uint8(v.Int64())
}

func attr(r *slog.Record, key string) (value slog.Value) {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == key {
			value = a.Value
			return false
		}
		return true
	})
	return value
}

// problems has the last problem of each neighbor, by address. It has its own lock: gobgp logs while
// the speaker waits for it.
type problems struct {
	changed func()

	mu   sync.Mutex
	last map[string]string
}

func (p *problems) set(addr, problem string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last[addr] != problem {
		p.last[addr] = problem
		p.changed()
	}
}

// take returns the problem of a neighbor and forgets it.
func (p *problems) take(addr string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	problem := p.last[addr]
	delete(p.last, addr)
	return problem
}

func (p *problems) get(addr string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last[addr]
}

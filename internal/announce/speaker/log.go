package speaker

import (
	"context"
	"log/slog"
)

// libraryLog returns a logger for gobgp. The speaker itself logs sessions that begin and end, so
// gobgp's records are one level lower: its information is debug output.
func libraryLog(log *slog.Logger) *slog.Logger {
	return slog.New(libraryHandler{log.Handler()})
}

type libraryHandler struct{ slog.Handler }

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

func (h libraryHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.Handler.Enabled(ctx, lowered(level))
}

func (h libraryHandler) Handle(ctx context.Context, r slog.Record) error {
	record := slog.NewRecord(r.Time, lowered(r.Level), "gobgp: "+r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		record.AddAttrs(a)
		return true
	})
	return h.Handler.Handle(ctx, record)
}

func (h libraryHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return libraryHandler{h.Handler.WithAttrs(attrs)}
}

func (h libraryHandler) WithGroup(name string) slog.Handler {
	return libraryHandler{h.Handler.WithGroup(name)}
}

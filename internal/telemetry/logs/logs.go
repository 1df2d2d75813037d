// Package logs makes the daemon's log: text on standard error, or fields for systemd's journal, and
// text in memory. On the way, a repeated warning is summarized (repeat.go), a too frequent message
// is omitted and counted (limit.go), a line that needs action gets its meaning and a hint
// (messages.go), and long values are cut.
package logs

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"unicode/utf8"
)

// longest bounds the bytes of a value in a line: users, and names in the network, can make values
// of any length.
const longest = 1024

// New returns a log from the level on. Its last lines are also kept in memory. flush writes pending
// summaries.
func New(level slog.Leveler, memory io.Writer, standardError *os.File) (log *slog.Logger, flush func()) {
	text := func(w io.Writer) slog.Handler { return slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}) }
	out := text(standardError)
	if j := openJournal(standardError, os.Getenv("JOURNAL_STREAM"), level, out); j != nil {
		out = j
	}
	limit := newLimit(handler{slog.NewMultiHandler(text(memory), out)})
	repeats := newRepeats(limit)
	return slog.New(repeats), func() { repeats.flush(); limit.flush() }
}

// handler adds meanings and hints, and cuts values.
type handler struct{ slog.Handler }

// Handle passes a line on with cut values, its meaning and a hint.
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	out := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	known := messageOf(r.Message)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == hintKey {
			known.hint = ""
		}
		out.AddAttrs(cut(a))
		return true
	})
	if r.Level >= slog.LevelWarn {
		if known.meaning != "" {
			out.AddAttrs(slog.String(meaningKey, known.meaning))
		}
		if known.hint != "" {
			out.AddAttrs(slog.String(hintKey, known.hint))
		}
	}
	return h.Handler.Handle(ctx, out)
}

// WithAttrs returns a handler that adds these attributes to its lines.
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	list := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		list[i] = cut(a)
	}
	return handler{h.Handler.WithAttrs(list)}
}

// WithGroup returns a handler whose attributes are a group.
func (h handler) WithGroup(name string) slog.Handler { return handler{h.Handler.WithGroup(name)} }

// cut shortens a value that is too long for a line.
func cut(a slog.Attr) slog.Attr {
	v := a.Value.Resolve()
	if k := v.Kind(); k != slog.KindString && k != slog.KindAny {
		return a
	}
	text := textOf(v)
	if len(text) <= longest {
		return slog.Attr{Key: a.Key, Value: v}
	}
	end := longest
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return slog.String(a.Key, fmt.Sprintf("%s... (%d bytes)", text[:end], len(text)))
}

// textOf returns a value as a line shows it, without quotes.
func textOf(v slog.Value) string {
	if err, ok := v.Any().(error); ok {
		return err.Error()
	}
	return v.String()
}

package logs

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// A message has a limit of lines per period. Messages are constants, so this bounds the lines that
// clients in the network and users of the API can cause.
const (
	most   = 100
	period = time.Minute
)

// leftOut is the message of the line with the number of missing ones.
const leftOut = "lines of the log were left out"

// limit omits lines with too frequent messages. Lines below info, which must be enabled explicitly,
// do not count.
type limit struct {
	slog.Handler
	shared *counts
}

// counts are shared by all handlers that are made from one.
type counts struct {
	mu     sync.Mutex
	lines  map[string]*count
	notify func(message string, c count) // of lines that were left out
	after  func(time.Duration, func()) interface{ Stop() bool }
	now    func() time.Time
}

// count is the lines of a message in the period that began then.
type count struct {
	began    time.Time
	level    slog.Level
	lines    int
	out      int // omitted lines
	announce interface{ Stop() bool }
}

func newLimit(h slog.Handler) *limit {
	c := &counts{
		lines: map[string]*count{}, now: time.Now, after: func(d time.Duration, f func()) interface{ Stop() bool } { return time.AfterFunc(d, f) },
	}
	c.notify = func(message string, n count) {
		r := slog.NewRecord(c.now(), n.level, leftOut, 0)
		r.AddAttrs(slog.String("message", message), slog.Int("lines", n.out), slog.Time("since", n.began))
		_ = h.Handle(context.Background(), r)
	}
	return &limit{h, c}
}

// Handle writes a line, or counts it.
func (l *limit) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo && !l.shared.admit(r.Message, r.Level) {
		return nil
	}
	return l.Handler.Handle(ctx, r)
}

// WithAttrs returns a handler that adds these attributes to its lines.
func (l *limit) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &limit{l.Handler.WithAttrs(attrs), l.shared}
}

// WithGroup returns a handler whose attributes are a group.
func (l *limit) WithGroup(name string) slog.Handler {
	return &limit{l.Handler.WithGroup(name), l.shared}
}

// flush reports omitted lines immediately.
func (l *limit) flush() {
	for _, message := range l.shared.messages() {
		l.shared.end(message)
	}
}

// admit reports whether a line has room.
func (c *counts) admit(message string, level slog.Level) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	n := c.lines[message]
	if n == nil || n.out == 0 && now.Sub(n.began) >= period {
		n = &count{began: now}
		c.lines[message] = n
	}
	n.level = max(n.level, level)
	n.lines++
	if n.lines <= most {
		return true
	}
	if n.out++; n.out == 1 {
		n.announce = c.after(period-now.Sub(n.began), func() { c.end(message) })
	}
	return false
}

// end ends the period of a message, and reports the lines omitted in it.
func (c *counts) end(message string) {
	c.mu.Lock()
	n := c.lines[message]
	delete(c.lines, message)
	c.mu.Unlock()
	if n == nil || n.out == 0 {
		return
	}
	n.announce.Stop()
	c.notify(message, *n)
}

func (c *counts) messages() (list []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for message := range c.lines {
		list = append(list, message)
	}
	return list
}

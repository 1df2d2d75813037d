package logs

import (
	"context"
	"hash/maphash"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// A repeated warning about the same subject has one line immediately, and then one line per period,
// which grows while the warning continues. The subject is what the line names: a service, an
// endpoint, a VIP. After newsAfter without the warning it counts as new.
const (
	newsAfter = 10 * time.Minute
	// maxSubjects bounds the memory: names come from users and from the network. Lines about
	// further subjects are bounded by their message alone (limit.go).
	maxSubjects = 512
	// maxChanges is the number of lines about a subject's changes of state before they are
	// summarized: enough to see each change, unless an endpoint flaps.
	maxChanges = 10
)

func periods() []time.Duration { return []time.Duration{time.Minute, 10 * time.Minute, time.Hour} }

// subjectKeys returns the attributes that name the subject of a line. TestMessages compares them
// with the source.
func subjectKeys() []string {
	return []string{
		"address", "aside", "at", "dir", "endpoint", "file", "from", "ifindex", "instance", "interface", "key", "kind", "line",
		"method", "mirror", "name", "neighbor", "node", "note", "owner", "path", "policer", "prefix", "property",
		"reason", "result",
		"revision", "service", "to", "vip", "what", "who",
	}
}

// changes returns the messages about changes of state: their callers log each change once, and the
// next one is new.
func changes() []string {
	return []string{
		"endpoint is down",
		"backups get new connections: too few endpoints before them are up",
		"connections are under pressure",
		"not working; trying again",
		"object cannot be applied; trying again",
		"problem",
		"a request could not be written to the audit log",
		"the level of the log was changed",
		"new certificate not used, the old one stays",
		"BGP session ended",
	}
}

// Count is a number of events since the line before: a summary has the sum of all lines.
type Count uint64

// LogValue returns the number.
func (c Count) LogValue() slog.Value { return slog.Uint64Value(uint64(c)) }

// repeats writes lines at warning and error, unless they repeat.
type repeats struct {
	slog.Handler
	shared  *subjects
	subject uint64 // of the attributes that all lines have
}

// subjects are shared by all handlers that are made from one.
type subjects struct {
	mu    sync.Mutex
	seed  maphash.Seed
	known map[uint64]*subject
	after func(time.Duration, func()) interface{ Stop() bool }
	now   func() time.Time
}

// subject is the state of the lines about one subject.
type subject struct {
	written, seen time.Time // when a line about it was written last, and when there was one
	lines         int       // written at once
	summaries     int
	timer         interface{ Stop() bool } // of the next summary; nil: none is pending

	repeated int       // lines that were not written
	first    time.Time // of these
	last     slog.Record
	sums     map[string]Count
	handler  slog.Handler // of the last line: it has the attributes of its logger
}

func newRepeats(h slog.Handler) *repeats {
	after := func(d time.Duration, f func()) interface{ Stop() bool } { return time.AfterFunc(d, f) }
	shared := &subjects{seed: maphash.MakeSeed(), known: map[uint64]*subject{}, after: after, now: time.Now}
	return &repeats{Handler: h, shared: shared}
}

// Handle writes a line, or keeps it for the summary.
func (r *repeats) Handle(ctx context.Context, line slog.Record) error {
	if line.Level >= slog.LevelWarn && !r.shared.admit(r.key(&line), &line, r.Handler) {
		return nil
	}
	return r.Handler.Handle(ctx, line)
}

// WithAttrs returns a handler that adds these attributes to its lines.
func (r *repeats) WithAttrs(attrs []slog.Attr) slog.Handler {
	out := &repeats{r.Handler.WithAttrs(attrs), r.shared, r.subject}
	for _, a := range attrs {
		out.subject = r.shared.add(out.subject, a)
	}
	return out
}

// WithGroup returns a handler whose attributes are a group.
func (r *repeats) WithGroup(name string) slog.Handler {
	return &repeats{r.Handler.WithGroup(name), r.shared, r.subject}
}

// key returns a hash of the message and its subject. Two subjects with one hash would share a
// summary, which is acceptable; keeping all names would cost memory.
func (r *repeats) key(line *slog.Record) uint64 {
	key := r.subject ^ maphash.String(r.shared.seed, line.Message)
	line.Attrs(func(a slog.Attr) bool {
		key = r.shared.add(key, a)
		return true
	})
	return key
}

func (s *subjects) add(key uint64, a slog.Attr) uint64 {
	if !slices.Contains(subjectKeys(), a.Key) {
		return key
	}
	return key ^ maphash.String(s.seed, a.Key+"\x00"+textOf(a.Value.Resolve()))
}

// admit reports whether a line is to be written now. It becomes the summary if one is overdue.
func (s *subjects) admit(key uint64, line *slog.Record, h slog.Handler) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.known[key]
	if one == nil || one.timer == nil && line.Time.Sub(one.seen) >= newsAfter {
		s.addSubject(key, line.Time)
		return true
	}
	one.seen = line.Time
	if one.lines < maxChanges && slices.Contains(changes(), line.Message) {
		one.lines++
		one.written = line.Time
		return true
	}
	one.keep(line, h)
	if one.timer != nil {
		return false
	}
	if wait := one.period() - line.Time.Sub(one.written); wait > 0 {
		one.timer = s.after(wait, func() { s.end(one) })
		return false
	}
	*line, _ = one.summary(line.Time)
	return true
}

// addSubject notes the first line about a subject. Old subjects make room for new ones.
func (s *subjects) addSubject(key uint64, now time.Time) {
	if len(s.known) >= maxSubjects {
		maps.DeleteFunc(s.known, func(_ uint64, one *subject) bool { return one.timer == nil && now.Sub(one.seen) >= newsAfter })
	}
	if len(s.known) < maxSubjects {
		s.known[key] = &subject{written: now, seen: now, lines: 1}
	}
}

// keep keeps a line for the summary.
func (one *subject) keep(line *slog.Record, h slog.Handler) {
	if one.repeated++; one.repeated == 1 {
		one.first = line.Time
	}
	one.last, one.handler = line.Clone(), h
	line.Attrs(func(a slog.Attr) bool {
		if n, ok := a.Value.Any().(Count); ok {
			if one.sums == nil {
				one.sums = map[string]Count{}
			}
			one.sums[a.Key] += n
		}
		return true
	})
}

// end writes the summary of a subject when it is due.
func (s *subjects) end(one *subject) {
	s.mu.Lock()
	if one.timer == nil { // it was flushed
		s.mu.Unlock()
		return
	}
	one.timer = nil
	line, h := one.summary(s.now())
	s.mu.Unlock()
	_ = h.Handle(context.Background(), line)
}

func (one *subject) period() time.Duration { return periods()[min(one.summaries, len(periods())-1)] }

// summary returns the last line with the number of lines since the written one, and the times of
// the first and last of these: the problem may have ended before the summary is written.
func (one *subject) summary(now time.Time) (slog.Record, slog.Handler) {
	line := slog.NewRecord(now, one.last.Level, one.last.Message, one.last.PC)
	one.last.Attrs(func(a slog.Attr) bool {
		if n, ok := one.sums[a.Key]; ok {
			a.Value = slog.AnyValue(n)
		}
		line.AddAttrs(a)
		return true
	})
	line.AddAttrs(
		slog.Int("repeated", one.repeated), slog.Time("first", one.first), slog.Time("last", one.last.Time),
		slog.Duration("period", now.Sub(one.written).Round(time.Second)))
	h := one.handler
	one.summaries++
	one.written, one.repeated, one.last, one.sums, one.handler = now, 0, slog.Record{}, nil, nil
	return line, h
}

// flush writes pending summaries.
func (r *repeats) flush() {
	var pending []*subject
	r.shared.mu.Lock()
	for _, one := range r.shared.known {
		if one.timer != nil && one.timer.Stop() {
			pending = append(pending, one)
		}
	}
	r.shared.mu.Unlock()
	for _, one := range pending {
		r.shared.end(one)
	}
}

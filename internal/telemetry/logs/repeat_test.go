package logs

import (
	"bytes"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"
)

// bench is a log with a clock that the test advances.
type bench struct {
	*repeats
	out    bytes.Buffer
	now    time.Time
	timers []*alarm
}

type alarm struct {
	at   time.Time
	ring func()
}

// Stop reports whether the alarm was still pending.
func (a *alarm) Stop() bool {
	pending := a.ring != nil
	a.ring = nil
	return pending
}

func newBench() *bench {
	b := &bench{now: time.Unix(1000, 0)}
	b.repeats = newRepeats(slog.NewTextHandler(&b.out, nil))
	b.shared.after = func(d time.Duration, f func()) interface{ Stop() bool } {
		one := &alarm{b.now.Add(d), f}
		b.timers = append(b.timers, one)
		return one
	}
	b.shared.now = func() time.Time { return b.now }
	return b
}

// wait lets time pass, and fires alarms at their time.
func (b *bench) wait(d time.Duration) {
	end := b.now.Add(d)
	for _, one := range b.timers {
		if ring := one.ring; ring != nil && !one.at.After(end) {
			one.ring, b.now = nil, one.at
			ring()
		}
	}
	b.now = end
}

// warn logs a line.
func (b *bench) warn(message string, args ...any) {
	line := slog.NewRecord(b.now, slog.LevelWarn, message, 0)
	line.Add(args...)
	_ = b.Handle(nil, line) //nolint:staticcheck // no handler here uses a context
}

var summaryTimes = regexp.MustCompile(` (first|last)=\S+`)

// lines returns the lines since the last call, without their time and without the times in
// summaries.
func (b *bench) lines() []string {
	text := strings.TrimSpace(b.out.String())
	b.out.Reset()
	if text == "" {
		return nil
	}
	list := strings.Split(text, "\n")
	for i, line := range list {
		_, list[i], _ = strings.Cut(line, "level=WARN msg=")
		list[i] = summaryTimes.ReplaceAllString(list[i], "")
	}
	return list
}

func (b *bench) expect(t *testing.T, want ...string) {
	t.Helper()
	if have := b.lines(); fmt.Sprint(have) != fmt.Sprint(want) {
		t.Errorf("the lines are\n%s\nwant\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
}

// TestRepeated checks that a warning that is repeated each second for two hours gives five lines.
// Each names the service, and together they count all events. After ten minutes without it, it
// counts as new.
func TestRepeated(t *testing.T) {
	t.Parallel()
	b := newBench()
	for range 2 * 3600 {
		b.warn("packets dropped", "reason", "no-endpoint", "service", "web", "packets", Count(10))
		b.wait(time.Second)
	}
	b.expect(t,
		`"packets dropped" reason=no-endpoint service=web packets=10`,
		`"packets dropped" reason=no-endpoint service=web packets=590 repeated=59 period=1m0s`,
		`"packets dropped" reason=no-endpoint service=web packets=6000 repeated=600 period=10m0s`,
		`"packets dropped" reason=no-endpoint service=web packets=36000 repeated=3600 period=1h0m0s`)
	b.flush()
	b.flush()
	b.expect(t, `"packets dropped" reason=no-endpoint service=web packets=29400 repeated=2940 period=49m0s`)
	b.wait(newsAfter)
	b.warn("packets dropped", "reason", "no-endpoint", "service", "web", "packets", Count(10))
	b.expect(t, `"packets dropped" reason=no-endpoint service=web packets=10`)
}

// TestSummaryTimes checks that a summary has the time at which it is written, and those of its
// first and last line, as the problem may be over. At the end of the process, pending summaries are
// written with the actual period.
func TestSummaryTimes(t *testing.T) {
	t.Parallel()
	b := newBench()
	expect := func(want string) {
		t.Helper()
		if have := strings.TrimSpace(b.out.String()); have != want {
			t.Errorf("the line is\n%s\nwant\n%s", have, want)
		}
		b.out.Reset()
	}
	at := func(s int64) string { return time.Unix(s, 0).Format("2006-01-02T15:04:05.000Z07:00") }
	warn := func() { b.warn("sweep failed") }
	warn()
	b.out.Reset()
	b.wait(2 * time.Second)
	warn()
	b.wait(3 * time.Second)
	warn()
	b.wait(55 * time.Second) // the problem is over: the summary comes a minute after the first line
	expect("time=" + at(1060) + ` level=WARN msg="sweep failed" repeated=2 first=` + at(1002) + " last=" + at(1005) + " period=1m0s")
	b.wait(10 * time.Second)
	warn()
	b.wait(20 * time.Second)
	b.flush()
	expect("time=" + at(1090) + ` level=WARN msg="sweep failed" repeated=1 first=` + at(1070) + " last=" + at(1070) + " period=30s")
}

// TestRarely checks that a line whose summary is overdue is written at once, as the summary.
func TestRarely(t *testing.T) {
	t.Parallel()
	b := newBench()
	for range 4 {
		b.warn("sweep failed", "error", "no memory")
		b.wait(90 * time.Second)
	}
	b.expect(t, `"sweep failed" error="no memory"`, `"sweep failed" error="no memory" repeated=1 period=1m30s`)
	b.wait(7 * time.Minute)
	b.expect(t, `"sweep failed" error="no memory" repeated=2 period=10m0s`)
}

// TestSubjects checks that lines about different subjects have separate summaries, also with
// several loggers, and that details do not distinguish lines.
func TestSubjects(t *testing.T) {
	t.Parallel()
	b := newBench()
	log := slog.New(b)
	for range 3 {
		log.With("service", "a").Warn("x", "error", b.now)
		log.With("service", "b").Warn("x", "error", b.now)
		log.Warn("x", "service", "c", "kind", "d")
		log.Warn("y", "service", "c", "kind", "d")
		log.Info("x", "service", "a")
		b.now = b.now.Add(time.Second)
	}
	if n := len(b.lines()); n != 4+3 {
		t.Errorf("%d lines", n)
	}
}

// TestChanges checks that each change of an endpoint's state has its line, until it flaps.
func TestChanges(t *testing.T) {
	t.Parallel()
	b := newBench()
	for range 100 {
		b.warn("endpoint is down", "endpoint", "31.31.31.1", "evidence", "refused")
		b.wait(100 * time.Millisecond)
	}
	if n := len(b.lines()); n != maxChanges {
		t.Errorf("%d lines", n)
	}
	b.wait(time.Minute)
	b.expect(t, `"endpoint is down" endpoint=31.31.31.1 evidence=refused repeated=90 period=1m0s`)
}

// TestManySubjects checks that the memory for subjects is bounded.
func TestManySubjects(t *testing.T) {
	t.Parallel()
	b := newBench()
	for round := range 3 {
		for i := range 2 * maxSubjects {
			b.warn("boot file", "note", fmt.Sprint(round, " ", i))
		}
		if n := len(b.shared.known); n != maxSubjects {
			t.Errorf("%d subjects are kept", n)
		}
		b.wait(newsAfter)
	}
	if n := len(b.lines()); n != 3*2*maxSubjects {
		t.Errorf("%d lines", n)
	}
}

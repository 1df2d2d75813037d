package main

import (
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"loxilb/internal/event"
)

// fakePrograms simulates programs that drop packets at the rates of a test.
type fakePrograms struct {
	drops               map[string]uint64
	before              map[string]uint64
	began               time.Time
	back, forward, kept int
	followed            int
}

func (d *fakePrograms) Drops() (map[string]uint64, error)           { return maps.Clone(d.drops), nil }
func (d *fakePrograms) DropsBefore() (time.Time, map[string]uint64) { return d.began, d.before }
func (d *fakePrograms) Exchanged() bool                             { return true }
func (d *fakePrograms) RollBack() error                             { d.back++; return nil }
func (d *fakePrograms) FollowFormer() error                         { d.followed++; return nil }
func (d *fakePrograms) RollForward() error                          { d.forward++; return nil }
func (d *fakePrograms) KeepPrograms() error                         { d.kept++; return nil }

// TestGoBack checks that the former programs are restored once if drops jump, and replaced again if
// they drop as much.
//
// P28 If drops jump in the first 10 seconds after an upgrade, the former programs return within a
// second, and the daemon says why; if those drop as much, they are replaced again
func TestGoBack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before              int           // drops per second before the exchange
		own, former         int           // after it, and after the former programs were restored
		from                time.Duration // delay of own after the exchange
		back, forward, kept int
		status              string
	}{
		"none":                       {0, 0, 0, 0, 0, 0, 1, ""},
		"as many as before":          {500, 500, 500, 0, 0, 0, 1, ""},
		"nine times as many":         {100, 900, 100, 0, 0, 0, 1, ""},
		"a few":                      {0, 9, 0, 0, 0, 0, 1, ""},
		"all, on a quiet machine":    {0, 20, 0, 0, 1, 0, 0, "reason no-connection (before: 0 per second)"},
		"a jump":                     {10, 1000, 10, 0, 1, 0, 0, "reason no-connection (before: 10 per second)"},
		"an attack that goes on":     {10, 1000, 1000, 2 * time.Second, 1, 1, 0, ""},
		"an attack that comes later": {0, 1000, 0, 11 * time.Second, 0, 0, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Now()
			d := &fakePrograms{began: now, before: map[string]uint64{"no-connection": 7}, drops: map[string]uint64{"no-connection": 7 + uint64(c.before)}}
			w := &exchangeWatch{datapath: d, version: "2.0", hub: event.NewHub(), log: slog.New(slog.DiscardHandler)}
			now = now.Add(time.Second)
			exchanged := now
			if err := w.begin(now); err != nil {
				t.Fatal(err)
			}
			for done := false; !done && now.Sub(exchanged) < time.Minute; {
				now = now.Add(exchangePeriod)
				rate := c.before
				if now.Sub(exchanged) > c.from {
					rate = c.own
				}
				if d.back > d.forward {
					rate = c.former
				}
				d.drops["no-connection"] += uint64(rate) * uint64(now.Sub(exchanged)/exchangePeriod%10/9) // once a second
				var err error
				if done, err = w.check(now); err != nil {
					t.Fatal(err)
				}
			}
			if d.back != c.back || d.forward != c.forward || d.kept != c.kept {
				t.Errorf("went back %d times, forward %d, kept %d; want %d, %d, %d", d.back, d.forward, d.kept, c.back, c.forward, c.kept)
			}
			if d.back > d.forward && d.followed < 100 {
				t.Errorf("the former programs were notified of changes %d times", d.followed)
			}
			list := w.statuses()
			if c.status == "" && len(list) > 0 || c.status != "" && (len(list) != 1 || !strings.Contains(list[0].Err.Error(), c.status)) {
				t.Errorf("statuses %v, want %q", list, c.status)
			}
		})
	}
}

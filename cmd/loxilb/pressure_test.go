package main

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"loxilb/internal/event"
	"loxilb/internal/lb/report"
)

// TestPressure checks that the beginning and the end of pressure publish one event each, in spite
// of a pause, and that there is a failed status in between.
func TestPressure(t *testing.T) {
	w := &pressureWatch{hub: event.NewHub(), log: slog.New(slog.DiscardHandler)}
	events := w.hub.Subscribe(event.KindPressure)
	start := time.Now()
	calm := report.Pressure{HalfOpenTCP: 49, HalfOpenMax: 160, Entries: 439, EntriesMax: 800}
	for _, step := range []struct {
		at   time.Duration
		p    report.Pressure
		want event.Action
	}{
		{0, calm, ""},
		{500 * time.Millisecond, report.Pressure{HalfOpenTCP: 59, HalfOpenMax: 160, EntriesMax: 800}, ""},
		{time.Second, report.Pressure{HalfOpenTCP: 60, HalfOpenMax: 160, EntriesMax: 800}, event.Began},
		{2 * time.Second, calm, ""},
		{3 * time.Second, report.Pressure{HalfOpenMax: 160, Entries: 440, EntriesMax: 800}, ""},
		{4 * time.Second, report.Pressure{HalfOpenOthers: 50, HalfOpenMax: 160, EntriesMax: 800}, ""},
		{6 * time.Second, calm, ""},
		{7 * time.Second, calm, event.Ended},
		{20 * time.Second, report.Pressure{HalfOpenOthers: 60, Entries: 440, EntriesMax: 800}, ""}, // --half-open-max=0
	} {
		before := w.hub.Last()
		w.update(step.p, start.Add(step.at))
		var got event.Action
		if w.hub.Last() > before {
			e, _, err := events.Next(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			got = e.Act()
		}
		if got != step.want {
			t.Errorf("after %v: event %q, want %q", step.at, got, step.want)
		}
		within := step.at >= time.Second && step.at < 7*time.Second
		if list := w.statuses(); (len(list) == 1) != within {
			t.Errorf("after %v: statuses %v", step.at, list)
		}
	}
}

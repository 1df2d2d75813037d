package main

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"loxilb/internal/control/servicestate"
	"loxilb/internal/event"
	"loxilb/internal/lb"
)

// TestUnserved checks that a service that stops serving clients gives one log line and one event,
// and another of each when it serves again. A state that only one check finds gives none.
func TestUnserved(t *testing.T) {
	t.Parallel()
	key, err := lb.ParseKey("20.20.20.1:80/tcp")
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	var now servicestate.State
	hub := event.NewHub()
	w := newUnservedWatch(func(yield func(lb.Key, uint64, *servicestate.Service)) {
		if now != "" {
			yield(key, 7, &servicestate.Service{State: now, Endpoints: []servicestate.State{servicestate.Down, servicestate.Drained}})
		}
	}, hub, slog.New(slog.NewTextHandler(&log, nil)))
	for _, step := range []struct {
		states string
		lines  []string
	}{
		{"up up unprobed degraded pending failed", nil},
		{"down up down up", nil},
		{"drained drained draining drained drained", []string{"serves no clients"}},
		{"pending failed failed", nil},
		{"down down down", []string{"serves no clients"}},
		{"panic panic", []string{"sends clients to endpoints that are down"}},
		{"up panic degraded degraded up", []string{"serves clients again"}},
	} {
		log.Reset()
		for state := range strings.FieldsSeq(step.states) {
			now = servicestate.State(state)
			w.check()
		}
		lines := slices.DeleteFunc(strings.Split(log.String(), "\n"), func(s string) bool { return s == "" })
		ok := len(lines) == len(step.lines)
		for i := range lines {
			ok = ok && strings.Contains(lines[i], step.lines[i]) && strings.Contains(lines[i], `endpoints="1 down, 1 drained"`)
		}
		if !ok {
			t.Errorf("%s: logged\n%s", step.states, log.String())
		}
	}
	if hub.Last() != 4 {
		t.Errorf("%d events, want 4", hub.Last())
	}
	now = "" // deleted: nothing is kept or logged
	log.Reset()
	if w.check(); log.Len() > 0 || len(w.reported)+len(w.seen) > 0 {
		t.Errorf("got log %q, reported %v and seen %v, want nothing", log.String(), w.reported, w.seen)
	}
}

// TestUnservedRests checks that without events the states of services are computed once a minute.
// After an event, a service that serves no clients is reported within 5 s, also if it stops serving
// a while after the event.
func TestUnservedRests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		key := lb.Key{Port: 80, Protocol: lb.TCP}
		var isDown atomic.Bool
		var looks atomic.Int32
		hub := event.NewHub()
		w := newUnservedWatch(func(yield func(lb.Key, uint64, *servicestate.Service)) {
			looks.Add(1)
			state := servicestate.Up
			if isDown.Load() {
				state = servicestate.Down
			}
			yield(key, 7, &servicestate.Service{State: state})
		}, hub, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		go w.run(ctx)
		time.Sleep(time.Minute)
		looks.Store(0)
		time.Sleep(time.Hour)
		if n := looks.Load(); n < 50 || n > 61 {
			t.Errorf("%d looks in an hour without events", n)
		}
		hub.Publish(event.Health{State: "down"})
		time.Sleep(5 * time.Second)
		isDown.Store(true) // the data path follows after the event
		if time.Sleep(5 * time.Second); hub.Last() != 2 {
			t.Errorf("%d events after 5 s, want 2", hub.Last())
		}
		isDown.Store(false) // no event reports it
		if time.Sleep(90 * time.Second); hub.Last() != 3 {
			t.Errorf("%d events after 90 s, want 3", hub.Last())
		}
		cancel()
		synctest.Wait()
	})
}

package main

import (
	"context"
	"log/slog"
	"time"

	"loxilb/internal/control/desired"
	"loxilb/internal/control/servicestate"
	"loxilb/internal/control/status"
	"loxilb/internal/event"
	"loxilb/internal/host/monotime"
	"loxilb/internal/kinds"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

const (
	// unservedPeriod is the interval of checks for unservedAfter after an event, since each cause
	// of a change publishes an event. unservedRegular is the interval without events.
	unservedPeriod, unservedAfter = 2 * time.Second, 10 * time.Second
	unservedRegular               = time.Minute
	// unservedRest and regularRest bound the CPU share with and without events: the next check is
	// at least that many times later than the last one took.
	unservedRest, regularRest = 50, 2000
	// unservedLines bounds the log lines per check: one endpoint can belong to all services.
	unservedLines = 8
)

// eachState yields the state of each service that the data path knows, with its version.
func eachState(state *desired.State, from view, yield func(lb.Key, uint64, *servicestate.Service)) {
	now := state.Snapshot()
	drains := servicestate.DrainsOf(state.Drains.All(now))
	var keys []lb.Key
	var services []*lb.Service
	for s := range state.Services.EachShared(now) {
		keys, services = append(keys, s.Key), append(services, s)
	}
	from.EachServiceStats(keys, func(place int, stats *report.ServiceStats) {
		s := services[place]
		of, _ := from.Get(status.ID{Kind: kinds.ServiceName, Key: s.Key.String()})
		states := servicestate.Of(servicestate.Gather(s, stats, drains, from.Health), servicestate.SyncOf(of))
		yield(s.Key, of.Desired, &states)
	})
}

// unservedWatch logs services that stop serving clients, and that serve again, with an event each.
type unservedWatch struct {
	each func(yield func(lb.Key, uint64, *servicestate.Service))
	hub  *event.Hub
	log  *slog.Logger

	reported map[lb.Key]servicestate.State // unserved services, as last reported
	seen     map[lb.Key]servicestate.State // states of the last check that differ from reported
}

func newUnservedWatch(each func(func(lb.Key, uint64, *servicestate.Service)), hub *event.Hub, log *slog.Logger) *unservedWatch {
	return &unservedWatch{each: each, hub: hub, log: log, reported: map[lb.Key]servicestate.State{}, seen: map[lb.Key]servicestate.State{}}
}

// run watches until ctx ends. It computes states only after something may have changed: those of
// 10,000 services take a tenth of a second.
func (w *unservedWatch) run(ctx context.Context) {
	events := w.hub.Subscribe()
	var took time.Duration
	for until := time.Now().Add(unservedAfter); ; {
		if time.Now().After(until) && len(w.seen) == 0 && awaitEvent(ctx, events, max(unservedRegular, regularRest*took)) {
			until = time.Now().Add(unservedAfter)
		}
		if !monotime.Sleep(ctx, max(unservedPeriod, unservedRest*took)) {
			return
		}
		for _, _, more := events.Poll(); more; _, _, more = events.Poll() {
			until = time.Now().Add(unservedAfter)
		}
		began := time.Now()
		w.check()
		took = time.Since(began)
	}
}

// awaitEvent reports whether there was an event within most.
func awaitEvent(ctx context.Context, events *event.Subscription, most time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	_, _, err := events.Next(ctx)
	return err == nil
}

// check reports the changes that two successive checks have found. Shorter changes are noise.
func (w *unservedWatch) check() {
	reported, seen, lines := map[lb.Key]servicestate.State{}, map[lb.Key]servicestate.State{}, 0
	w.each(func(key lb.Key, version uint64, s *servicestate.Service) {
		before, now := w.reported[key], reportedState(s.State)
		if s.State == servicestate.Pending || s.State == servicestate.Failed {
			now = before // the status reports these
		}
		if before != now {
			if last, there := w.seen[key]; there && last == now {
				lines++
				w.report(key, version, s, now != "", lines)
				before = now
			} else {
				seen[key] = now
			}
		}
		if before != "" {
			reported[key] = before
		}
	})
	if more := lines - unservedLines; more > 0 {
		w.log.Warn("more services stopped serving clients, or serve them again", "changes", more, "hint", "loxicmd get lb")
	}
	w.reported, w.seen = reported, seen
}

// reportedState returns the state to report: empty if the service serves clients. A change from
// draining to drained, when the last connection ends, is not reported.
func reportedState(s servicestate.State) servicestate.State {
	switch {
	case s.Serves():
		return ""
	case s == servicestate.Draining:
		return servicestate.Drained
	}
	return s
}

func (w *unservedWatch) report(key lb.Key, version uint64, s *servicestate.Service, bad bool, line int) {
	e := event.Object{ObjectKind: kinds.ServiceName, Key: key.String(), Version: version, Action: event.Solved, Error: "it serves clients again (" + s.Summary() + ")"}
	if bad {
		effect := "no endpoint takes new connections"
		if s.State == servicestate.Panic {
			effect = "new clients are sent to endpoints that are down"
		}
		e.Action, e.Error = event.Failed, "it is "+string(s.State)+" ("+s.Summary()+"): "+effect
	}
	w.hub.Publish(e)
	switch {
	case line > unservedLines:
	case bad && s.State == servicestate.Panic:
		w.log.Warn("service sends clients to endpoints that are down", "service", e.Key, "endpoints", s.Summary(), "hint", "loxicmd describe lb "+e.Key)
	case bad:
		w.log.Warn("service serves no clients", "service", e.Key, "state", s.State, "endpoints", s.Summary(), "hint", "loxicmd describe lb "+e.Key)
	default:
		w.log.Info("service serves clients again", "service", e.Key, "state", s.State, "endpoints", s.Summary())
	}
}

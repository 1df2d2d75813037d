package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"loxilb/internal/control/desired"
	"loxilb/internal/control/status"
	"loxilb/internal/diagnose/rates"
	"loxilb/internal/event"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// pressureWatch checks for pressure every pressurePeriod while pressure is possible. Pressure is
// over once no check has found it for pressureOver.
const (
	pressurePeriod = 250 * time.Millisecond
	pressureOver   = 3 * time.Second
)

// pressureWatch reports the beginning and end of pressure on the connection table: by an event, in
// the log, and by a status in between.
type pressureWatch struct {
	fullness      func() (report.Pressure, error)
	untilPossible func() <-chan struct{} // the channel is closed when pressure becomes possible; nil: it is possible
	hub           *event.Hub
	log           *slog.Logger

	mu    sync.Mutex
	began time.Time // zero: no pressure
	seen  time.Time // last check that found pressure
	now   report.Pressure
}

// run watches until ctx ends.
func (w *pressureWatch) run(ctx context.Context) {
	tick := time.NewTicker(pressurePeriod)
	defer tick.Stop()
	for {
		if calm := w.untilPossible(); calm != nil && !w.active() {
			tick.Stop()
			select {
			case <-ctx.Done():
				return
			case <-calm:
				tick.Reset(pressurePeriod)
			}
		}
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if p, err := w.fullness(); err == nil { // the sweep reads the same data, and logs errors
				w.update(p, now)
			}
		}
	}
}

func (w *pressureWatch) active() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.began.IsZero()
}

// update records the pressure at a time.
func (w *pressureWatch) update(p report.Pressure, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = p
	there := !w.began.IsZero()
	if isPressure(&p, there) {
		w.seen = now
		if !there {
			w.began = now
			w.log.Warn("connections are under pressure", "half_open_tcp", p.HalfOpenTCP, "half_open_others", p.HalfOpenOthers, "most", p.HalfOpenMax,
				"entries", p.Entries, "table", p.EntriesMax, "ports_short", p.PortsShort)
			w.hub.Publish(event.Pressure{Action: event.Began, Reason: pressureText(&p)})
		}
		return
	}
	if there && now.Sub(w.seen) >= pressureOver {
		took := now.Sub(w.began)
		w.began = time.Time{}
		w.log.Info("connections are no longer under pressure", "took", took)
		w.hub.Publish(event.Pressure{Action: event.Ended, Reason: pressureText(&p)})
	}
}

// isPressure reports whether pressure is worth reporting. It begins when three quarters of a
// service's share are used, or half of the table (from then on closed connections make room), or
// seven eighths of a pool of source ports. The threshold for its end is lower: after a flood, a
// quarter of the share stays in use for a minute.
func isPressure(p *report.Pressure, before bool) bool {
	const parts = 16 // of the share of all services
	least := int64(6)
	if before {
		least = 5
	}
	return p.HalfOpenMax > 0 && (max(p.HalfOpenTCP, p.HalfOpenOthers)*parts >= p.HalfOpenMax*least || p.Entries*20 >= p.EntriesMax*11 || p.PortsShort)
}

// pressureText describes how full the table is.
func pressureText(p *report.Pressure) string {
	ports := ""
	if p.PortsShort {
		ports = "; source ports are short"
	}
	return fmt.Sprintf("%d of TCP and %d others are half-open, of %d each at most; %d %% of the table are in use%s",
		p.HalfOpenTCP, p.HalfOpenOthers, p.HalfOpenMax, 100*p.Entries/max(1, p.EntriesMax), ports)
}

// statuses returns a failed status while there is pressure.
func (w *pressureWatch) statuses() []status.Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.began.IsZero() {
		return nil
	}
	return []status.Status{{
		ID: status.ID{Kind: "pressure", Key: "connections"}, Desired: 1, Since: w.began, Attempts: 1,
		Err: fmt.Errorf("half-open and closed connections expire early, and unknown clients may be challenged or refused: %s", pressureText(&w.now)),
	}}
}

// peaks are the highest numbers of simultaneous connections since the daemon began, sampled with
// the rates: of the table, and of services with a limit.
type peaks struct {
	state *desired.State
	rates *rates.Sampler

	limited  []lb.Key
	revision uint64 // of the state that limited was read from

	mu       sync.Mutex
	table    uint64
	services map[lb.Key]uint64
}

// run samples connections until ctx ends.
func (p *peaks) run(ctx context.Context) {
	var seen rates.Window
	for p.rates.Wait(ctx, seen) == nil {
		var totals rates.Totals
		totals, seen = p.rates.Now()
		p.update(totals.Tracked, func(key lb.Key) uint64 { return p.rates.Service(key).Active })
	}
}

// update adds a reading.
func (p *peaks) update(tracked uint64, active func(lb.Key) uint64) {
	p.find()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.table = max(p.table, tracked)
	services := make(map[lb.Key]uint64, len(p.limited)) // omits deleted services
	for _, key := range p.limited {
		services[key] = max(p.services[key], active(key))
	}
	p.services = services
}

// find finds the services that have a limit.
func (p *peaks) find() {
	now := p.state.Snapshot()
	if p.revision == now.Revision() {
		return
	}
	p.revision, p.limited = now.Revision(), p.limited[:0]
	for s := range p.state.Services.EachShared(now) {
		if s.MaxConnections > 0 {
			p.limited = append(p.limited, s.Key)
		}
	}
}

// Table returns the peak of the connection table.
func (p *peaks) Table() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.table
}

// Service returns the peak of a service that has a limit.
func (p *peaks) Service(key lb.Key) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.services[key]
}

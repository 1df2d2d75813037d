package connections

import (
	"context"
	"fmt"
	"time"

	"loxilb/internal/host/monotime"
	"loxilb/internal/kernel/datapath/tables"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

const (
	// endTick is the interval at which connections are ended, within the rates of their
	// endpoints. endTurn is the interval at which the list of ending endpoints is renewed.
	endTick = 10 * time.Millisecond
	endTurn = 100 * time.Millisecond
	// endsPerTick limits all endpoints together to the maximum rate.
	endsPerTick = int(lb.MaxEndRate * endTick / time.Second)
	// An endpoint for which a walk has found connections is checked again after lookAgain,
	// since a RST may be lost; otherwise after lookRarely: its remaining connections are
	// closed, and wait for the sweep.
	lookAgain  = time.Second
	lookRarely = 10 * time.Second
	endsIdle   = time.Minute
)

// ending is an endpoint whose connections are being ended.
type ending struct {
	tables.DueEndpoint
	queue []foundEnd // found, and not ended yet
	pace  *pace      // its own, or a drain's
	look  time.Time  // when the next walk includes it
	done  report.Ended
}

// pace is a rate in use: by one endpoint, or by all of a drain.
type pace struct {
	began time.Time
	taken int // from queues, since then
}

// EndEvery ends the connections of the endpoints of tables.DueEndpoints when they are due, at their
// rate, until ctx ends. kick signals changes.
func (t *Table) EndEvery(ctx context.Context, kick <-chan struct{}) {
	for kicked := true; ; {
		wait, err := t.endAllowed(ctx, kicked)
		if err != nil && ctx.Err() == nil {
			t.shared.Log.Error("connections of endpoints cannot be ended; trying again", "error", err)
			wait = lookAgain
		}
		kicked = false
		select {
		case <-ctx.Done():
			return
		case <-kick:
			kicked = true
		case <-time.After(wait):
		}
	}
}

// EndDue ends the due connections that a walk finds, at once: for tests and measurements.
func (t *Table) EndDue(ctx context.Context) error {
	t.walking.Lock()
	defer t.walking.Unlock()
	if _, err := t.findDue(ctx, true); err != nil {
		return err
	}
	for _, e := range t.ends {
		if err := t.endQueued(e, len(e.queue)); err != nil {
			return err
		}
	}
	clear(t.ends)
	return nil
}

// endAllowed ends as many connections as allowed now, and returns when to continue.
func (t *Table) endAllowed(ctx context.Context, kicked bool) (wait time.Duration, err error) {
	t.walking.Lock()
	defer t.walking.Unlock()
	if wait, err = t.findDue(ctx, kicked); err != nil {
		return 0, err
	}
	for end := time.Now().Add(endTurn); t.queued() && time.Now().Before(end); wait = 0 {
		left := endsPerTick
		for _, e := range t.ends {
			n := min(e.allowed(), left)
			left -= n
			if err := t.endQueued(e, n); err != nil {
				return 0, fmt.Errorf("endpoint %s: %w", e.Addr, err)
			}
		}
		monotime.Sleep(ctx, endTick)
	}
	return wait, ctx.Err()
}

func (t *Table) queued() bool {
	for _, e := range t.ends {
		if len(e.queue) > 0 {
			return true
		}
	}
	return false
}

// allowed returns how many queued connections may end now.
func (e *ending) allowed() int {
	return min(len(e.queue), max(1+int(time.Since(e.pace.began)*time.Duration(e.Rate)/time.Second)-e.pace.taken, 0))
}

// endQueued ends some connections that a walk has found.
func (t *Table) endQueued(e *ending, n int) error {
	for _, p := range e.queue[:n] {
		if err := t.endBoth(p, &e.done); err != nil {
			return err
		}
	}
	e.queue = e.queue[n:]
	e.pace.taken += n
	if n > 0 && len(e.queue) == 0 {
		t.shared.Log.Info("ended connections of an endpoint", "endpoint", e.Addr, "why", e.Why,
			"reset", e.done.Reset, "removed", e.done.Silent)
		e.queue, e.done = nil, report.Ended{}
		e.look = time.Now().Add(lookAgain)
	}
	return nil
}

// findDue finds the connections to end now, by one walk for all their endpoints, and returns the
// time of the next call. Removed endpoints without a connection are freed.
func (t *Table) findDue(ctx context.Context, kicked bool) (wait time.Duration, err error) {
	if kicked && t.tables.Ending() {
		t.quiesce() // afterwards, packets that saw an endpoint in its service have opened their connections
	}
	due, next, err := t.tables.DueEndpoints()
	if err != nil {
		return 0, fmt.Errorf("find endpoints with connections to end: %w", err)
	}
	if walk := t.enterDue(due); len(walk) > 0 {
		found, err := t.walk(ctx, walk)
		t.enqueue(walk, found)
		if err != nil {
			return 0, err
		}
		kicked = true
	}
	if kicked && t.tables.Ending() {
		// a service may change every second while an endpoint drains for hours, and a million
		// remembered clients take 0.7 s
		err = t.tables.Reap(t.quiesce, func(frees bool) error {
			if !frees {
				return nil
			}
			_, _, err := t.forgetClients(ctx)
			return err
		})
	}
	return t.untilNext(next), err
}

// enterDue adds the endpoints whose connections end now, and returns the endpoints of the next
// walk. While many connections of others are queued, endpoints wait for each other: each walk may
// visit the whole table.
func (t *Table) enterDue(due []tables.DueEndpoint) (walk []tables.DueEndpoint) {
	now, before := time.Now(), t.ends
	queued, late := 0, false
	t.ends = make(map[uint32]*ending, len(due))
	for _, d := range due {
		e := before[d.ID]
		if e == nil || e.Deadline != d.Deadline {
			e = &ending{pace: &pace{}}
		}
		e.DueEndpoint = d
		t.ends[d.ID] = e
		queued += len(e.queue)
		if len(e.queue) == 0 && !now.Before(e.look) {
			walk = append(walk, d)
			late = late || now.Sub(e.look) >= lookRarely
		}
	}
	if queued > t.findLimit/4 && !late {
		return nil
	}
	return walk
}

func (t *Table) enqueue(walk []tables.DueEndpoint, found map[uint32][]foundEnd) {
	now := time.Now()
	for _, w := range walk {
		e := t.ends[w.ID]
		e.pace = t.paceOf(w.Drain)
		e.queue, e.look = found[w.ID], now.Add(lookRarely)
	}
}

// paceOf returns the pace that the endpoints of a drain share while some of their connections
// remain, or a new one.
func (t *Table) paceOf(drain string) *pace {
	for _, e := range t.ends {
		if drain != "" && e.Drain == drain && len(e.queue) > 0 {
			return e.pace
		}
	}
	return &pace{began: time.Now()}
}

// untilNext returns the time until there is work, if nothing changes.
func (t *Table) untilNext(next time.Time) time.Duration {
	wait := endsIdle
	if !next.IsZero() {
		wait = min(wait, time.Until(next))
	}
	for _, e := range t.ends {
		wait = min(wait, time.Until(e.look))
	}
	return max(wait, endTick)
}

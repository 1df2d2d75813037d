package reconcile

import (
	"context"
	"errors"
	"sync"
	"time"

	"loxilb/internal/desired"
	"loxilb/internal/lb"
)

// Ender ends connections, rate a second, from a place on; when ctx ends, some may be left.
type Ender interface {
	EndConnections(ctx context.Context, from, rate int, matches func(*lb.Connection) bool) (lb.Ended, error)
}

const (
	// drainLook is how often deadlines are looked at.
	drainLook = 500 * time.Millisecond
	// drainAgain is when an endpoint without connections is looked at again: one may have been opened while it was drained.
	drainAgain = time.Minute
)

// Drains ends what is left of drained endpoints after their deadlines. That they take no new connections is the services' part.
type Drains struct {
	*objectLoop[lb.Drain]
	ender Ender
	due   map[string]drainDue // by key
}

// drainDue is when a drain of this version is looked at again.
type drainDue struct {
	version uint64
	at      time.Time
	from    int  // where to go on
	ended   bool // some, since the beginning
}

// NewDrains makes the loop of the objects.
func NewDrains(s *desired.State, e Ender, o Observers) *Drains {
	d := &Drains{ender: e, due: map[string]drainDue{}}
	d.objectLoop = newObjectLoop(desired.DrainKind, d, s, s.Drains.Table, (*lb.Drain).Key, o)
	return d
}

// Run works until ctx ends.
func (d *Drains) Run(ctx context.Context) {
	var helpers sync.WaitGroup
	defer helpers.Wait()
	helpers.Go(func() { d.endAtDeadlines(ctx) })
	d.Loop.Run(ctx)
}

// Apply has nothing to do but to say so: deadlines are looked at by the clock.
func (d *Drains) Apply(_ context.Context, keys []string) (out []Outcome[string]) {
	now := d.desired.Snapshot()
	for _, key := range keys {
		meta, _ := d.desired.Drains.Meta(now, key)
		out = append(out, Outcome[string]{Key: key, Version: meta.Version})
	}
	return out
}

func (d *Drains) endAtDeadlines(ctx context.Context) {
	tick := time.NewTicker(drainLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var all sync.WaitGroup
		next := map[string]drainDue{}
		var mu sync.Mutex
		now := d.desired.Snapshot()
		for drain := range d.desired.Drains.All(now) {
			meta, _ := d.desired.Drains.Meta(now, drain.Key())
			due, known := d.due[drain.Key()]
			if !known || due.version != meta.Version {
				due = drainDue{version: meta.Version, at: drain.Deadline}
			}
			all.Go(func() {
				if !drain.Deadline.IsZero() && !time.Now().Before(due.at) {
					d.endRest(ctx, &drain, &due)
				}
				mu.Lock()
				defer mu.Unlock()
				next[drain.Key()] = due
			})
		}
		all.Wait()
		d.due = next
	}
}

// endRest ends connections of a drained endpoint for a while, and says when and where to go on: at once, until there were none from the
// beginning to the end.
func (d *Drains) endRest(ctx context.Context, drain *lb.Drain, due *drainDue) {
	while, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	done, err := d.ender.EndConnections(while, due.from, drain.Rate, func(c *lb.Connection) bool { return drain.Has(c.Endpoint.Addr(), c.Endpoint.Port()) })
	if n := done.Told + done.Silent; n > 0 {
		d.Log.Info("connections of a drained endpoint are ended, as its deadline is over", "endpoint", drain.Key(), "ended", n)
	}
	due.at, due.from = time.Now(), done.Next
	due.ended = due.ended || done.Told+done.Silent > 0
	switch {
	case err == nil && done.Next == 0 && !due.ended:
		due.at = time.Now().Add(drainAgain)
	case err == nil && done.Next == 0:
		due.ended = false
	case err != nil && !errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		d.Log.Error("connections of a drained endpoint can't be ended; trying again", "endpoint", drain.Key(), "error", err)
	}
}

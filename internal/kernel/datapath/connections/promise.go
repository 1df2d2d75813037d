package connections

import (
	"time"

	"loxilb/internal/kernel/datapath/loader"
)

// sweepGrace is how late a sweep may be before packets sweep in its place
// (bpf/conntrack/reclaim.h).
const sweepGrace = 3 * time.Second

// promise tells the packet path by when the next slice of the sweep comes. A process that is gone
// no longer renews it, and needs nobody to notice that.
type promise struct{ clock loader.Clock }

// PromiseSweep promises the packet path that a sweep begins within d. Before the first promise,
// packets rely on a sweep.
func (t *Table) PromiseSweep(d time.Duration) {
	if err := t.promise.renew(t.shared, d+sweepGrace); err != nil {
		t.shared.Log.Error("the packet path cannot be notified of the next sweep", "error", err)
	}
}

// keepPromise renews the promise while a sweep is under way. Tests that sweep once promise nothing.
func (t *Table) keepPromise() {
	if t.promise.clock.Started() {
		t.PromiseSweep(0)
	}
}

func (p *promise) renew(c *loader.Collection, d time.Duration) error {
	due, err := p.clock.In(min(d, sweepPromiseMost), &c.Settings)
	if err != nil {
		return err
	}
	return c.Variables.SweepDue.Set(max(due, 1)) // memory; 0 is no promise
}

// sweepPromiseMost is less than SWEEP_PROMISE_MOST ticks (bpf/shared.h), whatever their length.
const sweepPromiseMost = 15 * time.Minute

package connections

import (
	"context"
	"fmt"
	"time"
)

// growPeriod is how often the table is looked at. A table of the first size is filled by 10,000 connections more than it
// begins to grow at.
const growPeriod = 50 * time.Millisecond

// growEvery makes room in the table as it fills, until ctx ends.
func (t *Table) growEvery(ctx context.Context) {
	tick := time.NewTicker(growPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := t.Grow(ctx); err != nil && ctx.Err() == nil {
			t.shared.Log.Error("the connection table cannot grow", "error", err, "hint", "new connections are refused once it is full; is there memory left?")
		}
	}
}

// Grow makes room in the table if it is nearly full, or goes on with what an earlier process had begun.
func (t *Table) Grow(ctx context.Context) error {
	t.growing.Lock()
	defer t.growing.Unlock()
	for ctx.Err() == nil {
		goal, growing, err := t.shared.Conntrack.Goal()
		if err != nil || !growing {
			return err
		}
		if err := t.shared.Conntrack.Extend(goal); err != nil {
			return fmt.Errorf("make room for connections: %w", err)
		}
		moved, err := runMarked(t.programs.LoxilbGrow, goal)
		if err != nil {
			return fmt.Errorf("move connections: %w", err)
		}
		if moved == 0 { // the last one is moved, or another CPU holds a lock
			time.Sleep(pause)
		}
	}
	return ctx.Err()
}

package connections

import (
	"context"
	"fmt"
	"time"
)

// growPeriod is how often the table is looked at. Room is made for what comes within growAhead at
// the present rate: the kernel takes some 30 ms to make it, and moves some 1,000 entries a
// millisecond. At most an eighth is added at once, or spareEntries, 13 MB: a burst need not go on,
// and the table does not shrink.
const (
	growPeriod = 50 * time.Millisecond
	growAhead  = time.Second
	growAtMost = 8 // one of so many
)

// growRest is the same while no connection comes, but many are there: 160,000 a second may begin to
// come meanwhile, and all find room in a table as it is made. While few are there, nobody looks at
// all (calm.go): to wake up costs more than to look, and a daemon that has nothing to do is to
// sleep.
const growRest = 100 * time.Millisecond

// growSoon is when the rate is measured after the packet path has signalled. The table grows for
// growBurst before that: the entries may have come at once, and on a busy machine the kernel takes
// up to 300 ms to make room.
const (
	growSoon  = 10 * time.Millisecond
	growBurst = spareEntries / 2
)

// growRetry is when growing is retried, if there was no memory for it.
const growRetry = time.Second

// spareEntries are what may come before the table grows again, or while no process lets it grow. A
// process that ends takes so long at most to make room for them.
const (
	spareEntries = 65_536
	spareTime    = 10 * time.Second
)

// growEvery grows the table as it fills, until ctx ends. While that is far off, it sleeps.
func (t *Table) growEvery(ctx context.Context) {
	tick := time.NewTimer(growPeriod)
	defer tick.Stop()
	defer t.calm.end()
	var bell <-chan struct{} // by which the packet path wakes it; nil: it does not sleep
	before, at := uint64(0), time.Now()
	for {
		woken := false
		select {
		case <-ctx.Done():
			return
		case <-bell:
			woken = true
		case <-tick.C:
		}
		entries, err := t.shared.Conntrack.Len()
		more, now, wait := uint64(0), time.Now(), growPeriod
		if entries <= before {
			wait = growRest
		}
		if woken { // they arrived in an unknown part of the time
			more = growBurst
		} else {
			more = expectedGrowth(before, entries, now.Sub(at))
		}
		if err == nil {
			err = t.grow(ctx, entries+more)
			before, at = entries, now
		}
		bell = nil
		switch {
		case err != nil && ctx.Err() == nil:
			wait = growRetry
			t.shared.Log.Error("the connection table cannot grow", "error", err, "hint", "new connections are refused once it is full; is there memory left?")
		case woken:
			wait = growSoon
		default:
			if bell = t.sleep(more); bell != nil {
				wait = calmLook
			}
		}
		if bell == nil {
			t.calm.end()
		}
		tick.Reset(wait)
	}
}

// expectedGrowth returns the number of entries to prepare for: those within growAhead, at the
// recent rate.
func expectedGrowth(before, now uint64, since time.Duration) uint64 {
	if now <= before || since <= 0 {
		return 0
	}
	return min(uint64(float64(now-before)*float64(growAhead)/float64(since)), max(now/growAtMost, spareEntries))
}

// grow grows the table for so many entries, if they would nearly fill it, or continues what an
// earlier process had begun.
func (t *Table) grow(ctx context.Context, entries uint64) error {
	t.growing.Lock()
	defer t.growing.Unlock()
	progress := time.Now()
	for ctx.Err() == nil {
		goal, growing, err := t.shared.Conntrack.Goal(entries)
		if err != nil || !growing {
			return err
		}
		if err := t.shared.Conntrack.Extend(goal); err != nil {
			return fmt.Errorf("make room for connections: %w", err)
		}
		moved, err := t.runMarked(growTable, goal)
		if err != nil {
			return fmt.Errorf("move connections: %w", err)
		}
		if moved > 0 {
			progress = time.Now()
			continue
		}
		if time.Since(progress) > growRetry {
			return fmt.Errorf("move connections: none could be moved for %v: a group of buckets is full, until one of its connections ends", growRetry)
		}
		time.Sleep(pause) // nothing to move yet, or nothing left, or another CPU holds a lock
	}
	return ctx.Err()
}

// leaveSpare makes room for new connections until the next process takes over, as far as possible
// until ctx ends.
func (t *Table) leaveSpare(ctx context.Context) error {
	entries, err := t.shared.Conntrack.Len()
	if err != nil {
		return err
	}
	return t.grow(ctx, entries+spareEntries)
}

package connections

import (
	"context"
	"fmt"
	"time"

	"loxilb/internal/kernel/datapath/conntrack"
)

// growPeriod is the interval of checks. A check makes room for what arrives within growAhead at the
// present rate, or within growTimes as long as the last check took: the kernel takes some 30 ms to
// allocate it, and moves some 1,000 entries a millisecond, but on a busy machine both may take half
// a second. It adds at most an eighth at once, or spareEntries, 13 MB: a burst may end, and the
// table does not shrink.
const (
	growPeriod = 50 * time.Millisecond
	growAhead  = time.Second
	growTimes  = 4
	growShare  = 8 // an eighth
)

// growRest is the interval while no connection arrives, but many exist: 160,000 a second may start
// meanwhile, and find room in a table of the default size. While few exist, there are no checks
// (wakesignal.go): waking up costs more than checking, and an idle daemon should sleep.
const growRest = 100 * time.Millisecond

// growSoon is the time from the packet path's signal to the measurement of the rate. The table
// grows for growBurst before that: the entries may have come at once, and on a busy machine the
// kernel takes up to 300 ms to make room.
const (
	growSoon  = 10 * time.Millisecond
	growBurst = spareEntries / 2
)

// growRetry is the interval of attempts to grow while memory is lacking.
const growRetry = time.Second

// spareEntries may arrive before the table grows again, or while no process makes it grow. A
// terminating process takes at most that long to make room for them.
const (
	spareEntries = 65_536
	spareTime    = 10 * time.Second
)

// growEvery grows the table as it fills, until ctx ends. While that is far off, it sleeps.
func (t *Table) growEvery(ctx context.Context) {
	tick := time.NewTimer(growPeriod)
	defer tick.Stop()
	defer t.wakeSignal.fire()
	var bell <-chan struct{} // the wake signal; nil: check periodically
	before, at := uint64(0), time.Now()
	ahead := growAhead
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
			more = expectedGrowth(before, entries, now.Sub(at), ahead)
		}
		if err == nil {
			err = t.grow(ctx, entries+more)
			before, at = entries, now
			ahead = max(growAhead, growTimes*time.Since(now))
		}
		bell = nil
		switch {
		case err != nil && ctx.Err() == nil:
			wait = growRetry
			t.shared.Log.Error("the connection table cannot grow", "error", err, "hint", "new connections are refused once it is full; check the machine's free memory")
		case woken:
			wait = growSoon
		default:
			if bell = t.sleep(more); bell != nil {
				wait = wakeCheck
			}
		}
		if bell == nil {
			t.wakeSignal.fire()
		}
		tick.Reset(wait)
	}
}

// expectedGrowth returns the number of entries to prepare for: the arrivals in the time ahead at
// the recent rate.
func expectedGrowth(before, now uint64, since, ahead time.Duration) uint64 {
	if now <= before || since <= 0 {
		return 0
	}
	return min(uint64(float64(now-before)*float64(ahead)/float64(since)), max(now/growShare, spareEntries))
}

// grow grows the table if this many entries would nearly fill it, or continues an earlier process's
// growth. It fails if nothing was moved in growRetry of pauses: on a busy machine, making room may
// take longer than that.
func (t *Table) grow(ctx context.Context, entries uint64) error {
	t.growing.Lock()
	defer t.growing.Unlock()
	stalled := time.Duration(0) // pauses since the last move
	for ctx.Err() == nil {
		goal, growing, err := t.shared.Conntrack.GroupsFor(entries)
		if err != nil || !growing {
			return err
		}
		if goal, err = t.extend(goal); err != nil {
			return err
		}
		moved, err := t.runMarked(growTable, goal)
		if err != nil {
			return fmt.Errorf("move connections: %w", err)
		}
		if moved > 0 {
			stalled = 0
			continue
		}
		if stalled += pause; stalled > growRetry {
			return fmt.Errorf("move connections: none could be moved for %v: a group of buckets is full, until one of its connections ends", growRetry)
		}
		time.Sleep(pause) // nothing to move yet, or nothing left, or another CPU holds a lock
	}
	return ctx.Err()
}

// extend makes groups, and returns how many there are to grow to: fewer if memory is short.
func (t *Table) extend(goal uint32) (uint32, error) {
	err := t.shared.Conntrack.Extend(goal)
	if err == nil {
		return goal, nil
	}
	if part, ok := t.shared.Conntrack.Part(); ok {
		return part, nil
	}
	return 0, fmt.Errorf("make room for connections: %w", err)
}

// MakeRoom makes room for connections of other nodes, which arrive faster than growth is checked.
// If the table must grow, it grows by more: each growth moves entries.
func (t *Table) MakeRoom(ctx context.Context, connections int) error {
	entries, err := t.shared.Conntrack.Len()
	if err != nil {
		return err
	}
	needed := entries + conntrack.EntriesPerConnection*uint64(connections)
	if _, growing, err := t.shared.Conntrack.GroupsFor(needed); err != nil || !growing {
		return err
	}
	return t.grow(ctx, needed+max(entries/growShare, spareEntries))
}

// MakeTotalRoom makes room for this number of connections in total. In an empty table, no entries
// need to be moved.
func (t *Table) MakeTotalRoom(ctx context.Context, connections int) error {
	return t.grow(ctx, conntrack.EntriesPerConnection*uint64(connections))
}

// leaveSpare makes room for new connections until the next process takes over, where possible
// until ctx ends.
func (t *Table) leaveSpare(ctx context.Context) error {
	entries, err := t.shared.Conntrack.Len()
	if err != nil {
		return err
	}
	return t.grow(ctx, entries+spareEntries)
}

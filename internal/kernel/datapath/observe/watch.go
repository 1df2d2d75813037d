package observe

import (
	"context"
	"fmt"
	"math/bits"
	"sync"
	"time"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/tables"
	"loxilb/internal/lb/report"
)

const (
	// watchPeriod is the interval of reading a ring: the packet path does not wake readers.
	watchPeriod = 10 * time.Millisecond
	// eventRoom is the time after which a ring without a reader is half full, at the watcher's
	// declared rate. From then on, connections are omitted.
	eventRoom = 125 * time.Millisecond
	// eventBatch is the number of events passed on at a time.
	eventBatch = 256

	eventSize    = 128 + 8 // with the header of a record
	eventRingMin = 1 << 16
)

// WatchRateMax is the highest rate of events that a watcher may declare.
const WatchRateMax = 1_000_000

// ErrTooManyWatchers reports that the maximum number of watchers exists.
var ErrTooManyWatchers = fmt.Errorf("connections are watched by the maximum of %d clients already", bpf.TcRingMAX_WATCHERS)

// Watchers report connections as they are opened, assured, closing and ended
// (bpf/observe/event.h).
type Watchers struct {
	shared *loader.Collection
	tables *tables.Tables
	mu     sync.Mutex
	active uint32 // bit mask of the numbers in use
}

// NewWatchers returns Watchers without a watcher.
func NewWatchers(c *loader.Collection, services *tables.Tables) *Watchers {
	return &Watchers{shared: c, tables: services}
}

// WatchConnections calls yield with events of connections, and the numbers omitted since the watch
// began, until ctx ends or yield returns false. It calls yield at short intervals even without
// events, so yield can end the watch. The events are valid until yield returns.
//
// All events are reported while there are fewer than rate per second, and yield keeps up. Otherwise
// all events of some connections are reported, and no events of others.
func (w *Watchers) WatchConnections(ctx context.Context, rate int, yield func([]report.ConnectionEvent, report.Omitted) bool) error {
	if rate < 1 || rate > WatchRateMax {
		return fmt.Errorf("a rate of %d events per second is out of range (allowed: 1 to %d)", rate, WatchRateMax)
	}
	number, err := w.claimNumber()
	if err != nil {
		return err
	}
	defer w.releaseNumber(number)
	r, err := openRing(w.shared, "watcher", ringSize(rate))
	if err != nil {
		return err
	}
	defer r.close()
	if err := r.attach(number); err != nil {
		return err
	}
	defer r.detach() //nolint:errcheck // nothing writes there any more
	if err := w.set(number, true); err != nil {
		return err
	}
	defer w.set(number, false) //nolint:errcheck // nothing listens there any more
	var events []report.ConnectionEvent
	read := func() (list []report.ConnectionEvent, err error) {
		events, err = readRows(r, events[:0], eventBatch, w.describe)
		return events, err
	}
	return follow(ctx, r, watchPeriod, eventBatch, read, yield)
}

// ringSize returns a power of two.
func ringSize(rate int) uint32 {
	bytes := uint64(rate) * eventSize * uint64(2*eventRoom/time.Millisecond) / 1000
	return max(eventRingMin, uint32(1)<<bits.Len64(bytes-1))
}

// claimNumber claims a free number for a watcher.
func (w *Watchers) claimNumber() (uint32, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for number := range uint32(bpf.TcRingMAX_WATCHERS) {
		if w.active>>number&1 == 0 {
			w.active |= 1 << number
			return number, nil
		}
	}
	return 0, ErrTooManyWatchers
}

func (w *Watchers) releaseNumber(number uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.active &^= 1 << number
}

// set starts or stops the packet path's reports to a watcher.
func (w *Watchers) set(number uint32, on bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var watching uint32
	if err := w.shared.Variables.WatchersNow.Get(&watching); err != nil {
		return fmt.Errorf("read the watchers: %w", err)
	}
	watching &^= 1 << number
	if on {
		watching |= 1 << number
	}
	if err := w.shared.Variables.WatchersNow.Set(watching); err != nil {
		return fmt.Errorf("write the watchers: %w", err)
	}
	if err := w.shared.Variables.Watching.Set(watching); err != nil {
		return fmt.Errorf("enable events for a watcher: %w", err)
	}
	return nil
}

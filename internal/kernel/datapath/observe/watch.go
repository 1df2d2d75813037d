package observe

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/tables"
	"loxilb/internal/lb"
)

const (
	// watchPeriod is how often a ring is read. The packet path wakes nobody.
	watchPeriod = 10 * time.Millisecond
	// eventRoom is how long a ring takes events at the rate that its watcher has declared, before
	// it is half full and connections are left out.
	eventRoom = 125 * time.Millisecond
	// eventBatch is how many events are handed over at a time.
	eventBatch = 256

	eventSize    = 128 + 8 // with the header of a record
	eventRingMin = 1 << 16
)

// WatchRateMax is the highest rate of events that a watcher may declare.
const WatchRateMax = 1_000_000

// ErrTooManyWatchers reports that the maximum number of watchers exists.
var ErrTooManyWatchers = errors.New("as many watch the connections already as can")

// Watchers report connections as they are opened, assured, closing and ended
// (bpf/observe/event.h).
type Watchers struct {
	shared *loader.Collection
	tables *tables.Tables
	mu     sync.Mutex
	now    uint32 // a bit for each
}

// NewWatchers watches nothing yet.
func NewWatchers(c *loader.Collection, services *tables.Tables) *Watchers {
	return &Watchers{shared: c, tables: services}
}

// WatchConnections calls yield with what has become of connections, and what was not told since the
// watch began, until ctx ends or yield returns false. It does so often: with no events, if nothing
// has happened. The events are valid until yield returns.
//
// As long as less than rate events a second come, and yield takes as many, all are told. Beyond
// that, all events of some connections are, and none of others.
func (w *Watchers) WatchConnections(ctx context.Context, rate int, yield func([]lb.ConnectionEvent, lb.Untold) bool) error {
	if rate < 1 || rate > WatchRateMax {
		return fmt.Errorf("a rate of %d events a second is out of range: it is 1 to %d", rate, WatchRateMax)
	}
	number, err := w.take()
	if err != nil {
		return err
	}
	defer w.giveBack(number)
	ring, err := ebpf.NewMap(&ebpf.MapSpec{Name: "watcher", Type: ebpf.RingBuf, MaxEntries: ringSize(rate)})
	if err != nil {
		return fmt.Errorf("make a ring of events: %w", err)
	}
	defer ring.Close()
	reader, err := ringbuf.NewReader(ring)
	if err != nil {
		return fmt.Errorf("read a ring of events: %w", err)
	}
	defer reader.Close()
	before, err := w.untold(number)
	if err != nil {
		return err
	}
	if err := w.shared.Maps.Watchers.Put(number, ring); err != nil {
		return fmt.Errorf("put a ring of events in its place: %w", err)
	}
	defer w.shared.Maps.Watchers.Delete(number) //nolint:errcheck // nothing writes there any more
	if err := w.set(number, true); err != nil {
		return err
	}
	defer w.set(number, false) //nolint:errcheck // nothing listens there any more
	return w.follow(ctx, reader, number, before, yield)
}

// ringSize returns a power of two.
func ringSize(rate int) uint32 {
	bytes := uint64(rate) * eventSize * uint64(2*eventRoom/time.Millisecond) / 1000
	return max(eventRingMin, uint32(1)<<bits.Len64(bytes-1))
}

func (w *Watchers) follow(ctx context.Context, reader *ringbuf.Reader, number uint32, before lb.Untold, yield func([]lb.ConnectionEvent, lb.Untold) bool) error {
	tick := time.NewTicker(watchPeriod)
	defer tick.Stop()
	in := eventInbox{reader: reader, tables: w.tables}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for more := true; more; {
			events, err := in.read()
			if err != nil {
				return fmt.Errorf("read events: %w", err)
			}
			untold, err := w.untold(number)
			if err != nil {
				return err
			}
			untold.Sampled -= before.Sampled
			untold.Lost -= before.Lost
			if !yield(events, untold) {
				return nil
			}
			more = len(events) == eventBatch && ctx.Err() == nil
		}
	}
}

// take finds a number for a watcher.
func (w *Watchers) take() (uint32, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for number := range uint32(bpf.TcRingMAX_WATCHERS) {
		if w.now>>number&1 == 0 {
			w.now |= 1 << number
			return number, nil
		}
	}
	return 0, ErrTooManyWatchers
}

func (w *Watchers) giveBack(number uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now &^= 1 << number
}

// set starts or stops the packet path's reports to a watcher.
func (w *Watchers) set(number uint32, on bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var told uint32
	if err := w.shared.Maps.WatchersNow.Lookup(uint32(0), &told); err != nil {
		return fmt.Errorf("read who watches: %w", err)
	}
	told &^= 1 << number
	if on {
		told |= 1 << number
	}
	if err := w.shared.Maps.WatchersNow.Put(uint32(0), told); err != nil {
		return fmt.Errorf("note who watches: %w", err)
	}
	if err := w.shared.Variables.Watching.Set(told); err != nil {
		return fmt.Errorf("note that somebody watches: %w", err)
	}
	return nil
}

// untold returns what was left out or lost, over all watchers of this number.
func (w *Watchers) untold(number uint32) (sum lb.Untold, err error) {
	var each []bpf.TcUntold
	if err := w.shared.Maps.UntoldCounts.Lookup(number, &each); err != nil {
		return sum, fmt.Errorf("read what was not told: %w", err)
	}
	for _, n := range each {
		sum.Sampled += n.Sampled
		sum.Lost += n.Lost
	}
	return sum, nil
}

// eventInbox reads a ring.
type eventInbox struct {
	reader *ringbuf.Reader
	tables *tables.Tables
	record ringbuf.Record
	events []lb.ConnectionEvent
}

// read reads available events, a batch at most, without waiting.
func (in *eventInbox) read() ([]lb.ConnectionEvent, error) {
	in.events = in.events[:0]
	since := sinceBoot()
	in.reader.SetDeadline(time.Unix(1, 0))
	for len(in.events) < eventBatch {
		err := in.reader.ReadInto(&in.record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return nil, err
		}
		e, err := decodeEvent(in.record.RawSample)
		if err != nil {
			return nil, err
		}
		in.events = append(in.events, in.describe(e, since))
	}
	return in.events, nil
}

package connections

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/observe"
	"loxilb/internal/kernel/datapath/tables"
)

// Table is the connection table. Methods are safe for concurrent use.
type Table struct {
	shared   *loader.Collection
	tables   *tables.Tables
	meter    *observe.Meter
	hooks    Hooks
	sockets  Sockets
	programs *Programs

	growing    sync.Mutex
	stop       context.CancelFunc // growEvery
	stopped    sync.WaitGroup
	wakeSignal wakeSignal
	promise    promise
	clock      clock

	walking   sync.Mutex // ends.go
	ends      map[uint32]*ending
	findLimit int           // maxFoundTotal, except for tests
	idleReset atomic.Uint64 // idle connections whose ends both got a RST
	finding   sync.Mutex    // a slice of a search
	searching *search       // the search of the last slice; guarded by finding
	judging   sync.Mutex
	sweeping  sync.Mutex
	gathering sync.Mutex
	cost      time.Duration // CPU time of the last sweep and its follow-up work; guarded by sweeping
	recurring time.Duration // cost without that of ending connections
	sweptMu   sync.Mutex
	swept     SweepStats
}

// Hooks are the hooks where packets arrive.
type Hooks interface {
	Any() bool // whether programs are attached
	// Arrival returns the hook of this interface, at which packets may seem to arrive, or of
	// another one if it has none.
	Arrival(wanted int) (ifindex int, mac net.HardwareAddr, ok bool)
}

// Sockets are this machine's own sockets that use endpoints: they count as connections, and are in
// no table.
type Sockets interface {
	// Flows returns their number of flows, by endpoint id.
	Flows() (map[uint32]uint64, error)
}

// New lists, sweeps and ends connections, and grows the table as it fills until Close.
func New(c *loader.Collection, services *tables.Tables, m *observe.Meter, programs *Programs, hooks Hooks, sockets Sockets) *Table {
	t := &Table{shared: c, tables: services, meter: m, programs: programs, hooks: hooks, sockets: sockets, ends: map[uint32]*ending{}, findLimit: maxFoundTotal, clock: clock{jiffy: c.Jiffy()}}
	if programs != nil {
		var ctx context.Context
		ctx, t.stop = context.WithCancel(context.Background())
		t.stopped.Go(func() { t.growEvery(ctx) })
	}
	return t
}

// inUse reports whether packets may be in the programs of the tc hooks.
func (t *Table) inUse() bool { return t.hooks.Any() || t.shared.Pinned() }

// Close releases the programs. If packets continue without the process, it leaves spare room in the
// table.
func (t *Table) Close() error {
	if t == nil || t.programs == nil {
		return nil
	}
	t.stop()
	t.stopped.Wait()
	var err error
	if t.shared.Pinned() && t.inUse() {
		ctx, cancel := context.WithTimeout(context.Background(), spareTime)
		err = t.leaveSpare(ctx)
		cancel()
	}
	return errors.Join(err, t.programs.Close())
}

// clock follows the packet path's clock. Only a program can read that clock, so it is read rarely.
type clock struct {
	jiffy time.Duration

	mu     sync.Mutex
	readAt time.Time
	ticks  uint64 // at that time
}

// clockValid is how long the clocks of kernel and process are assumed to agree: they drift.
const clockValid = time.Minute

// now returns the time in ticks.
func (c *clock) now() (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.readAt.IsZero() || time.Since(c.readAt) > clockValid {
		ticks, err := loader.Ticks()
		if err != nil {
			return 0, err
		}
		c.readAt, c.ticks = time.Now(), ticks
	}
	return c.ticks + uint64(time.Since(c.readAt)/c.jiffy), nil
}

// span converts ticks to a duration.
func (c *clock) span(ticks uint64) time.Duration { return time.Duration(ticks) * c.jiffy }

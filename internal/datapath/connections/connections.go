package connections

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/ringbuf"

	"loxilb/internal/datapath/bpf"
	"loxilb/internal/datapath/loader"
	"loxilb/internal/datapath/pressure"
	"loxilb/internal/datapath/tables"
)

// Table is the connection table. Methods are safe for concurrent use.
type Table struct {
	shared   *loader.Collection
	tables   *tables.Tables
	meter    *pressure.Meter
	hooks    Hooks
	programs *Programs

	growing sync.Mutex
	stop    context.CancelFunc // growEvery
	stopped sync.WaitGroup

	walking  sync.Mutex // ends.go
	ends     map[uint32]*ending
	idleTold atomic.Uint64 // idle connections of which both ends got a RST
	sweeping sync.Mutex
	cost     time.Duration // CPU time of the last sweep with all that belongs to it; guarded by sweeping
	sweptMu  sync.Mutex
	swept    SweepStats
}

// Hooks are where packets come in.
type Hooks interface {
	Any() bool // whether there are some
	// Arrival is the hook of this interface, or another one if that has none: at which packets may seem to arrive.
	Arrival(wanted int) (ifindex int, mac net.HardwareAddr, ok bool)
}

// New lists, sweeps and ends connections, and lets the table grow as it fills until Close.
func New(c *loader.Collection, services *tables.Tables, m *pressure.Meter, programs *Programs, hooks Hooks) *Table {
	t := &Table{shared: c, tables: services, meter: m, programs: programs, hooks: hooks, ends: map[uint32]*ending{}}
	if programs != nil {
		var ctx context.Context
		ctx, t.stop = context.WithCancel(context.Background())
		t.stopped.Go(func() { t.growEvery(ctx) })
	}
	return t
}

// inUse says whether there may be packets in the programs of the tc hooks.
func (t *Table) inUse() bool { return t.hooks.Any() || t.shared.Pinned() }

// Programs sweep, and end connections.
type Programs struct {
	objects
	idle  *ringbuf.Reader // of IdleEnds
	found *ringbuf.Reader // of FoundEnds
}

type objects struct {
	bpf.SweepPrograms
	IdleEnds    *ebpf.Map `ebpf:"idle_ends"`
	IdleReports *ebpf.Map `ebpf:"idle_reports"`
	FoundEnds   *ebpf.Map `ebpf:"found_ends"`

	EndingEndpoints *ebpf.Variable `ebpf:"ending_endpoints"`
	WalkMet         *ebpf.Variable `ebpf:"walk_met"`
}

// Close gives them up.
func (p *Programs) Close() error {
	return errors.Join(p.idle.Close(), p.found.Close(), p.SweepPrograms.Close(), p.IdleEnds.Close(), p.IdleReports.Close(), p.FoundEnds.Close())
}

// LoadSweep loads them; types is a cache of the kernel's.
func LoadSweep(c *loader.Collection, types *btf.Cache) (*Programs, error) {
	spec, err := bpf.LoadSweep()
	if err != nil {
		return nil, fmt.Errorf("read sweep object: %w", err)
	}
	if err := c.Configure(spec); err != nil {
		return nil, err
	}
	shared := map[string]*ebpf.Map{
		"bloom_filter":      c.Maps.BloomFilter,
		"connections":       c.Maps.Connections,
		"table_states":      c.Maps.TableStates,
		"table_counts":      c.Maps.TableCounts,
		"endpoints":         c.Maps.Endpoints,
		"endpoint_states":   c.Maps.EndpointStates,
		"half_opens":        c.Maps.HalfOpens,
		"half_opens_kept":   c.Maps.HalfOpensKept,
		"service_states":    c.Maps.ServiceStates,
		"limits_by_service": c.Maps.LimitsByService,
		"limited_clients":   c.Maps.LimitedClients,
		"idle_timeouts":     c.Maps.IdleTimeouts,
		"persists":          c.Maps.Persists,
		"persist_timeouts":  c.Maps.PersistTimeouts,
		"snat_usages":       c.Maps.SnatUsages,
		"sweep_reports":     c.Maps.SweepReports,
		"watchers":          c.Maps.Watchers,
		"whereabouts":       c.Maps.Whereabouts,
		"watchers_now":      c.Maps.WatchersNow,
		"untold_counts":     c.Maps.UntoldCounts,
	}
	loader.ShareMaps(spec, shared, "moved_entries", "idle_ends", "idle_reports", "found_ends")
	if err := spec.Variables["watching"].Set(uint32(1)); err != nil { // it asks who watches each time
		return nil, fmt.Errorf("have the sweep tell watchers: %w", err)
	}
	programs := &Programs{}
	if err := spec.LoadAndAssign(&programs.objects, &ebpf.CollectionOptions{MapReplacements: shared, Cache: types}); err != nil {
		return nil, fmt.Errorf("load sweep: %w", err)
	}
	for _, r := range []struct {
		reader **ringbuf.Reader
		ring   *ebpf.Map
	}{{&programs.idle, programs.IdleEnds}, {&programs.found, programs.FoundEnds}} {
		if *r.reader, err = ringbuf.NewReader(r.ring); err != nil {
			return nil, errors.Join(fmt.Errorf("read ends of connections: %w", err), programs.SweepPrograms.Close())
		}
		(*r.reader).SetDeadline(time.Unix(1, 0)) // it waits for nothing
	}
	return programs, nil
}

// Close gives up the programs. If packets go on without the process, it leaves spare room in the table.
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

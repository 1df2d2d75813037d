package connections

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

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
	inUse    func() bool // whether there may be packets in the programs
	programs *bpf.SweepPrograms

	growing sync.Mutex
	stop    context.CancelFunc // growEvery
	stopped sync.WaitGroup

	sweeping sync.Mutex
	cost     time.Duration // CPU time of the last sweep with all that belongs to it; guarded by sweeping
	sweptMu  sync.Mutex
	swept    SweepStats
}

// New lists and sweeps, and lets the table grow as it fills until Close. inUse says whether there may be packets in the programs
// of the tc hooks.
func New(c *loader.Collection, services *tables.Tables, m *pressure.Meter, programs *bpf.SweepPrograms, inUse func() bool) *Table {
	t := &Table{shared: c, tables: services, meter: m, programs: programs, inUse: inUse}
	if programs != nil {
		var ctx context.Context
		ctx, t.stop = context.WithCancel(context.Background())
		t.stopped.Go(func() { t.growEvery(ctx) })
	}
	return t
}

// LoadSweep loads the programs that sweep; types is a cache of the kernel's.
func LoadSweep(c *loader.Collection, types *btf.Cache) (*bpf.SweepPrograms, error) {
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
		"watchers_now":      c.Maps.WatchersNow,
		"untold_counts":     c.Maps.UntoldCounts,
	}
	loader.ShareMaps(spec, shared, "moved_entries")
	if err := spec.Variables["watching"].Set(uint32(1)); err != nil { // it asks who watches each time
		return nil, fmt.Errorf("have the sweep tell watchers: %w", err)
	}
	programs := &bpf.SweepPrograms{}
	if err := spec.LoadAndAssign(programs, &ebpf.CollectionOptions{MapReplacements: shared, Cache: types}); err != nil {
		return nil, fmt.Errorf("load sweep: %w", err)
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

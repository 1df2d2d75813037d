package connections

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
)

// The programs, by purpose.
const (
	sweepRows     = "loxilb_sweep"
	sweepPersists = "loxilb_sweep_persists"
	sweepSNAT     = "loxilb_sweep_snat"
	growTable     = "loxilb_grow"
	walkRows      = "loxilb_walk"
	findRows      = "loxilb_find"
	endSilently   = "loxilb_end"
	sendReset     = "loxilb_reset"
)

// timers is the map with the timer that visits the table while no process sweeps.
const timers = "reclaim_timers"

// Programs sweep, grow and search the table, and end connections. A start loads the program that
// sweeps and, if the table may grow, the program that grows it: when the table fills, there is no
// time to load it. The others are loaded on first use.
type Programs struct {
	shared *loader.Collection
	maps   map[string]*ebpf.Map // that they share with the programs at the hooks
	own    *ebpf.Collection     // their own maps and variables
	idle   *ringbuf.Reader      // of idle_ends
	found  *ringbuf.Reader      // of found_ends
	rows   *ringbuf.Reader      // of found_rows

	idleReports               *ebpf.Map
	endingEndpoints, walkMet  *ebpf.Variable
	findWanted, findEndpoints *ebpf.Variable
	judged                    *ebpf.Variable

	loading sync.Mutex // held while a program is loaded, which takes a while; locked before mu
	mu      sync.RWMutex
	loaded  map[string]*ebpf.Program
}

// LoadSweep makes the maps of all programs, and loads those that a start needs.
func LoadSweep(c *loader.Collection) (*Programs, error) {
	p := &Programs{shared: c, maps: SharedMaps(c), loaded: map[string]*ebpf.Program{}}
	spec, err := p.spec()
	if err != nil {
		return nil, err
	}
	opts := ebpf.CollectionOptions{MapReplacements: p.maps}
	if c.Pinned() {
		spec.Maps[timers].Pinning, opts.Maps.PinPath = ebpf.PinByName, c.MapFolder()
	}
	if p.own, err = loader.MakeMaps(spec, opts); err != nil {
		return nil, fmt.Errorf("make maps of the sweep: %w", err)
	}
	p.idleReports, p.endingEndpoints, p.walkMet = p.own.Maps["idle_reports"], p.own.Variables["ending_endpoints"], p.own.Variables["walk_met"]
	p.findWanted, p.findEndpoints = p.own.Variables["find_wanted"], p.own.Variables["find_endpoints"]
	p.judged = p.own.Variables["judged_endpoints"]
	if p.idle, err = readRing(p.own.Maps["idle_ends"]); err == nil {
		p.found, err = readRing(p.own.Maps["found_ends"])
	}
	if err == nil {
		p.rows, err = readRing(p.own.Maps["found_rows"])
	}
	if err == nil {
		err = p.loadFirst(spec)
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

func (p *Programs) loadFirst(spec *ebpf.CollectionSpec) error {
	most, err := p.shared.Conntrack.Max()
	if err != nil {
		return err
	}
	_, grows, err := p.shared.Conntrack.GroupsFor(most)
	if err == nil && grows {
		err = p.load(spec, growTable)
	}
	return errors.Join(err, p.load(spec, sweepRows))
}

// readRing makes a reader that never blocks.
func readRing(ring *ebpf.Map) (*ringbuf.Reader, error) {
	r, err := ringbuf.NewReader(ring)
	if err != nil {
		return nil, fmt.Errorf("read found connections: %w", err)
	}
	r.SetDeadline(time.Unix(1, 0))
	return r, nil
}

// spec reads the object. It is read again for each program that is loaded later: keeping it would
// take megabytes.
func (p *Programs) spec() (*ebpf.CollectionSpec, error) {
	spec, err := bpf.LoadSweep()
	if err != nil {
		return nil, fmt.Errorf("read sweep object: %w", err)
	}
	if err := p.shared.Configure(spec); err != nil {
		return nil, err
	}
	loader.ShareMaps(spec, p.maps, "moved_entries", "idle_ends", "idle_reports", "found_ends", "found_rows", timers)
	if err := spec.Variables["watching"].Set(uint32(1)); err != nil { // the program checks for watchers itself
		return nil, fmt.Errorf("make the sweep notify watchers: %w", err)
	}
	return spec, nil
}

// load adds a program. The call must be the only user of spec.
func (p *Programs) load(spec *ebpf.CollectionSpec, name string) error {
	made, err := loader.LoadProgram(spec, p.own.Maps, name)
	if err != nil {
		return fmt.Errorf("load %s: %w", name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loaded[name] = made
	return nil
}

// Program returns the program of that name.
func (p *Programs) Program(name string) (*ebpf.Program, error) {
	if have := p.has(name); have != nil {
		return have, nil
	}
	p.loading.Lock()
	defer p.loading.Unlock()
	if have := p.has(name); have != nil {
		return have, nil
	}
	spec, err := p.spec()
	if err == nil {
		err = p.load(spec, name)
	}
	return p.has(name), err
}

// has returns a program if it is loaded. It does not wait for loading.
func (p *Programs) has(name string) *ebpf.Program {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.loaded[name]
}

func (p *Programs) all() error {
	for _, name := range []string{sweepPersists, sweepSNAT, growTable, walkRows, findRows, endSilently, sendReset, judgeSamples, gatherLoads} {
		if _, err := p.Program(name); err != nil {
			return err
		}
	}
	return nil
}

// LoadPrograms also loads the programs that a start defers.
func (t *Table) LoadPrograms() error { return t.programs.all() }

// run runs a program on a packet.
func (p *Programs) run(name string, opts *ebpf.RunOptions) (uint32, error) {
	program, err := p.Program(name)
	if err != nil {
		return 0, err
	}
	return program.Run(opts)
}

// Close releases the programs and maps.
func (p *Programs) Close() error {
	var errs []error
	for _, r := range []*ringbuf.Reader{p.idle, p.found, p.rows} {
		if r != nil {
			errs = append(errs, r.Close())
		}
	}
	for _, program := range p.loaded {
		errs = append(errs, program.Close())
	}
	p.own.Close()
	return errors.Join(errs...)
}

// SharedMaps returns the maps of the programs at the hooks.
func SharedMaps(c *loader.Collection) map[string]*ebpf.Map {
	return map[string]*ebpf.Map{
		"bloom_filter":       c.Maps.BloomFilter,
		"connections":        c.Maps.Connections,
		"table_states":       c.Maps.TableStates,
		"table_counts":       c.Maps.TableCounts,
		"lifetimes":          c.Maps.Lifetimes,
		"endpoints":          c.Maps.Endpoints,
		"endpoint_states":    c.Maps.EndpointStates,
		"connection_counts":  c.Maps.ConnectionCounts,
		"half_opens":         c.Maps.HalfOpens,
		"half_opens_kept":    c.Maps.HalfOpensKept,
		"service_states":     c.Maps.ServiceStates,
		"limits_by_service":  c.Maps.LimitsByService,
		"limited_clients":    c.Maps.LimitedClients,
		"idle_timeouts":      c.Maps.IdleTimeouts,
		"persists":           c.Maps.Persists,
		"persist_timeouts":   c.Maps.PersistTimeouts,
		"snat_usages":        c.Maps.SnatUsages,
		"sctp_paths":         c.Maps.SctpPaths,
		"sctp_vips":          c.Maps.SctpVips,
		"sweep_reports":      c.Maps.SweepReports,
		"watchers":           c.Maps.Watchers,
		"whereabouts":        c.Maps.Whereabouts,
		"untold_counts":      c.Maps.UntoldCounts,
		loader.SharedSection: c.Section(loader.SharedSection),
	}
}

// Package datapath is the boundary to the kernel: it loads the programs, attaches them, writes the tables that
// compile makes, and reads counters and connections back. With datapath/bpf it is the only importer of
// cilium/ebpf.
//
// A Datapath belongs to the network namespace of the thread that loads it.
package datapath

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"loxilb/internal/datapath/bpf"
	"loxilb/internal/datapath/pins"
)

// Timeouts are how long a connection may be silent before it is over, by state.
type Timeouts struct {
	TCPEstablished, TCPSyn, TCPClosing, TCPClosed time.Duration
	UDPUnreplied, UDPReplied                      time.Duration
}

// DefaultTimeouts follow RFC 5382 (established: at least 2 h 4 min) and RFC 4787 (UDP: 5 min).
func DefaultTimeouts() Timeouts {
	return Timeouts{
		TCPEstablished: 7440 * time.Second,
		TCPSyn:         60 * time.Second,
		TCPClosing:     120 * time.Second,
		TCPClosed:      10 * time.Second,
		UDPUnreplied:   30 * time.Second,
		UDPReplied:     300 * time.Second,
	}
}

// snatRest is how long a source port rests after its connection.
const snatRest = 30 * time.Second

// Config says how to load the data path.
type Config struct {
	PinDir         string                         // in a BPF file system; empty: nothing is pinned, all ends with the process
	Connections    int                            // size of the connection table; 0: by memory (DefaultConnections)
	Timeouts       Timeouts                       // zero value: DefaultTimeouts
	HashSeed       uint64                         // key of the flow hash, as that of the tables
	NoRedirectPeer bool                           // never bpf_redirect_peer
	NoKfuncs       bool                           // as on kernels before 6.2, for tests
	Hook           Hook                           // where to attach
	XDP            XDPMode                        // zero value: XDPNative
	DefaultRoutes  func() ([]DefaultRoute, error) // asked when a service first needs them; nil: there are none
	Log            *slog.Logger
}

// fragmentTimeout is how long the later fragments of a datagram are let through after the first.
const fragmentTimeout = 30 * time.Second

// Datapath is the loaded data path. Its methods are safe for concurrent use.
type Datapath struct {
	cfg        Config
	log        *slog.Logger
	hz         uint32
	obj        bpf.TcObjects        // programs: nil until they are asked for
	maps       map[string]*ebpf.Map // those of obj by name, with its sections of variables
	sweep      bpf.SweepPrograms
	sockets    *sockets          // nil: not attached
	xdp        *xdp              // nil: not in use; written under both locks
	xdpRefused error             // why it could not be loaded
	fresh      bool              // no map was pinned: all are new and empty
	reasons    map[uint32]string // of drops
	segment    *ebpf.MapSpec     // of slots

	mu       sync.RWMutex
	tables   tables
	attached map[int]*attached // by interface index

	hopMu sync.Mutex
	hops  uint32 // generation of next hops; 0: none was set yet

	sweeping sync.Mutex
	sweptMu  sync.Mutex
	swept    SweepStats
}

// Load loads the programs and makes the maps, or adopts those pinned in cfg.PinDir with all their services,
// endpoints and connections.
func Load(cfg Config) (*Datapath, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Connections == 0 {
		cfg.Connections = DefaultConnections()
	}
	if cfg.Timeouts == (Timeouts{}) {
		cfg.Timeouts = DefaultTimeouts()
	}
	cfg.Hook = cfg.Hook.resolve()
	if cfg.XDP == "" {
		cfg.XDP = XDPNative
	}
	hz, err := jiffiesPerSecond()
	if err != nil {
		return nil, err
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		cfg.Log.Debug("memlock limit not raised", "err", err)
	}
	d := &Datapath{cfg: cfg, log: cfg.Log, hz: hz, attached: map[int]*attached{}}
	if err := d.load(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// load makes the maps; then it loads the programs that every machine needs, and reads the maps meanwhile.
func (d *Datapath) load() error {
	spec, err := bpf.LoadTc()
	if err != nil {
		return fmt.Errorf("read data path object: %w", err)
	}
	if d.reasons, err = enumNames(spec.Types, "drop_reason", "DROP_"); err != nil {
		return err
	}
	if err := d.configure(spec); err != nil {
		return err
	}
	d.segment = spec.Maps["slots"].InnerMap
	opts := ebpf.CollectionOptions{}
	if d.cfg.PinDir != "" {
		if opts.Maps.PinPath, err = d.preparePins(spec); err != nil {
			return err
		}
	}
	if err := d.makeMaps(spec, opts); err != nil {
		if errors.Is(err, ebpf.ErrMapIncompatible) {
			err = pins.Refuse(err)
		}
		return fmt.Errorf("load data path: %w", err)
	}
	if err := d.keepPins(spec); err != nil {
		return fmt.Errorf("load data path: %w", err)
	}
	types := btf.NewCache() // the kernel's, read once
	return sideBySide(d.adoptPinned, func() error { return d.loadSweep(types) }, func() error { return d.loadEther(spec, types) })
}

func (d *Datapath) adoptPinned() error {
	if err := errors.Join(d.adopt(), d.BumpNextHops()); err != nil {
		return fmt.Errorf("adopt pinned maps: %w", err)
	}
	return nil
}

func (d *Datapath) loadSweep(types *btf.Cache) error {
	spec, err := bpf.LoadSweep()
	if err != nil {
		return fmt.Errorf("read sweep object: %w", err)
	}
	if err := d.configure(spec); err != nil {
		return err
	}
	shared := map[string]*ebpf.Map{
		"connections":      d.obj.Connections,
		"endpoints":        d.obj.Endpoints,
		"endpoint_states":  d.obj.EndpointStates,
		"idle_timeouts":    d.obj.IdleTimeouts,
		"persists":         d.obj.Persists,
		"persist_timeouts": d.obj.PersistTimeouts,
		"snat_usages":      d.obj.SnatUsages,
		"sweep_reports":    d.obj.SweepReports,
	}
	shareMaps(spec, shared)
	if err := spec.LoadAndAssign(&d.sweep, &ebpf.CollectionOptions{MapReplacements: shared, Cache: types}); err != nil {
		return fmt.Errorf("load sweep: %w", err)
	}
	return nil
}

// shareMaps leaves an object the maps that it shares with others, in the size that they have, and its own. The rest is
// declared in maps.h, and not used by it.
func shareMaps(spec *ebpf.CollectionSpec, shared map[string]*ebpf.Map, own ...string) {
	for name, m := range spec.Maps {
		if have, ok := shared[name]; ok {
			m.MaxEntries = have.MaxEntries()
		} else if !slices.Contains(own, name) && !internalMap(name) {
			delete(spec.Maps, name)
		}
	}
}

// internalMap tells a section of variables (.rodata, .data.x) from a declared map.
func internalMap(name string) bool { return name[0] == '.' }

// configure sets the load-time constants that an object has.
func (d *Datapath) configure(spec *ebpf.CollectionSpec) error {
	peer := uint8(1)
	if d.cfg.NoRedirectPeer {
		peer = 0
	}
	kfuncs := uint8(1)
	if d.cfg.NoKfuncs {
		kfuncs = 0
	}
	t := d.cfg.Timeouts
	for name, value := range map[string]any{
		"hz":                      d.hz,
		"kfuncs":                  kfuncs,
		"redirect_peer":           peer,
		"hash_seed":               d.cfg.HashSeed,
		"timeout_tcp_established": d.jiffies(t.TCPEstablished),
		"timeout_tcp_syn":         d.jiffies(t.TCPSyn),
		"timeout_tcp_closing":     d.jiffies(t.TCPClosing),
		"timeout_tcp_closed":      d.jiffies(t.TCPClosed),
		"timeout_fragment":        d.jiffies(fragmentTimeout),
		"timeout_snat_rest":       d.jiffies(snatRest),
		"timeout_udp_unreplied":   d.jiffies(t.UDPUnreplied),
		"timeout_udp_replied":     d.jiffies(t.UDPReplied),
	} {
		v, ok := spec.Variables[name]
		if !ok {
			continue // the compiler dropped a constant that this object does not read
		}
		if err := v.Set(value); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	if m, ok := spec.Maps["connections"]; ok {
		m.MaxEntries = uint32(2 * d.cfg.Connections)
	}
	if m, ok := spec.Maps["persists"]; ok {
		m.MaxEntries = uint32(d.cfg.Connections)
	}
	return nil
}

// Close releases the process's hold on the data path. What is pinned goes on working; the rest ends.
func (d *Datapath) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, a := range d.attached {
		errs = append(errs, a.each(func(a attachment) error {
			if d.cfg.PinDir != "" {
				return a.Close()
			}
			return errors.Join(a.Detach(), a.Close())
		}))
	}
	d.tables.close()
	errs = append(errs, d.xdp.close(d.cfg.PinDir != ""), d.sockets.close(), d.sweep.Close(), d.obj.Close(), d.closeSections())
	return errors.Join(errs...)
}

// BumpNextHops makes every connection resolve its next hop anew with its next packet: a neighbour, a route or
// a link has changed.
//
// The first generation is a random one: connections may have next hops cached from the time of an earlier process.
func (d *Datapath) BumpNextHops() error {
	d.hopMu.Lock()
	defer d.hopMu.Unlock()
	if d.hops == 0 {
		d.hops = rand.Uint32()
	}
	d.hops++
	if err := d.obj.HopGeneration.Set(d.hops); err != nil {
		return fmt.Errorf("bump next hop generation: %w", err)
	}
	return d.xdp.bump(d.hops)
}

// ShareNextHops says whether all packets to an address take the same way: then a new connection need not ask for what
// another one was told. To be called before BumpNextHops when that changes.
func (d *Datapath) ShareNextHops(shared bool) error {
	var value uint32
	if shared {
		value = 1
	}
	if err := d.obj.NextHopsShared.Set(value); err != nil {
		return fmt.Errorf("share next hops: %w", err)
	}
	return nil
}

// jiffies converts a duration to the kernel's ticks, at least one.
func (d *Datapath) jiffies(t time.Duration) uint32 {
	return uint32(max(1, t*time.Duration(d.hz)/time.Second))
}

// jiffiesPerSecond is CONFIG_HZ: the coarse clock advances once a tick.
func jiffiesPerSecond() (uint32, error) {
	var res unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &res); err != nil {
		return 0, fmt.Errorf("read the kernel's tick: %w", err)
	}
	if res.Nano() <= 0 {
		return 0, fmt.Errorf("read the kernel's tick: resolution %d ns", res.Nano())
	}
	return uint32((time.Second.Nanoseconds() + res.Nano()/2) / res.Nano()), nil
}

// DefaultConnections sizes the connection table: as many connections as fit into 0.5 % of memory, at least
// 262,144.
func DefaultConnections() int {
	const smallest, bytesEach = 262144, 416 // two entries of 192 bytes and their buckets
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return smallest
	}
	total := uint64(info.Totalram) * uint64(info.Unit)
	return int(min(max(total/200/bytesEach, smallest), 1<<30))
}

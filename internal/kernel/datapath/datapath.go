// Package datapath is the boundary to the kernel: it loads and attaches the programs, writes the
// tables of package compile, and reads counters and connections. Only this package and the packages
// below it import cilium/ebpf. It assembles its parts, which are packages of their own.
//
// A Datapath belongs to the network namespace of the thread that loads it.
package datapath

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/attach"
	"loxilb/internal/kernel/datapath/connections"
	"loxilb/internal/kernel/datapath/copies"
	"loxilb/internal/kernel/datapath/dryrun"
	"loxilb/internal/kernel/datapath/hostsockets"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/observe"
	"loxilb/internal/kernel/datapath/pins"
	"loxilb/internal/kernel/datapath/policy"
	"loxilb/internal/kernel/datapath/routing"
	"loxilb/internal/kernel/datapath/tables"
	"loxilb/internal/kernel/datapath/testrun"
)

// Config configures the data path.
type Config struct {
	PinDir         string   // in a BPF file system; empty: nothing is pinned, all ends with the process
	Connections    int      // size of the connection table; 0: by memory (loader.DefaultConnections)
	Timeouts       Timeouts // zero value: loader.DefaultTimeouts
	HalfOpen       int      // percentage of the table for half-open connections, of TCP and of all others each; 0: unlimited
	IdleResets     int      // idle TCP connections per second that end by RSTs to both ends; 0: none
	HashSeed       uint64   // key of the flow hash; services' tables are compiled with the same key
	PortStripe     int      // eighth of the source ports that is used first, from 1; 0: no preference
	NoRedirectPeer bool     // never bpf_redirect_peer
	NoKfuncs       bool     // as on kernels before 6.2, for tests
	ResetRate      int      // RSTs to segments without a connection, per second and CPU, for tests; 0: 10,000
	ForeignFirst   bool     // always check for foreign packets before the connection lookup, for tests
	ChallengeFirst bool     // always challenge SYNs before the connection lookup, for tests
	Hook           Hook     // where to attach
	EndConnections bool     // if the pinned maps have another layout, start without them
	XDP            XDPMode  // zero value: XDPNative
	Log            *slog.Logger
}

// TrialConnections is the size of the connection table in trials.
const TrialConnections = 1024

// PortStripes is the number of stripes into which a cluster divides source ports.
const PortStripes = loader.PortStripes

// Datapath is the loaded data path. Its methods are safe for concurrent use.
type Datapath struct {
	*tables.Tables        // services
	*connections.Table    // listing and sweeping connections
	*attach.Hooks         // interfaces
	*routing.Routing      // next hops and default routes
	*routing.Leases       // until when VIPs are owned
	*attach.XDP           // the XDP program, which runs before tc
	*hostsockets.Sockets  // this machine's own sockets
	*hostsockets.Ports    // their ports
	*observe.DropCounters // packets dropped
	*observe.Watchers     // events of connections
	*policy.Attached      // policers
	*observe.Meter        // use of the connection table, and challenged clients
	*attach.Probes        // probes that go to VIPs
	*attach.GTP           // tunnels of mobile users
	*observe.Recorder     // copies of packets
	*observe.Tracer       // packets as they arrive and as they leave
	*copies.Copies        // connections of other nodes
	firewall              *policy.Firewall
	policies              *policy.IPsecPolicies
	dry                   *dryrun.Runner

	collection *loader.Collection
	exchange   *exchange
	localMu    sync.Mutex
	local      bool // answers of endpoints on this machine are handled
}

// Load loads the programs and makes the maps, or adopts those pinned in cfg.PinDir with all their
// services, endpoints and connections.
func Load(cfg Config) (*Datapath, error) {
	settings := cfg.settings()
	c, err := loader.Open(settings)
	if errors.Is(err, pins.ErrLayout) && cfg.EndConnections {
		c, err = openWithout(settings, err)
	}
	if err != nil {
		return nil, err
	}
	e := &exchange{began: time.Now()}
	d := &Datapath{
		collection: c, exchange: e, DropCounters: observe.NewDropCounters(c), Meter: observe.NewMeter(c), Ports: hostsockets.NewPorts(c), Hooks: attach.New(c, cfg.Hook, &e.Exchange),
	}
	if err := d.load(cfg); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// ABI returns a hash of the layout of pinned maps: builds with the same hash can replace each other
// without losing connections.
func ABI() (string, error) { return loader.ABI() }

// ABI returns the hash of the running build.
func (d *Datapath) ABI() string { return d.collection.ABI }

func (cfg Config) settings() loader.Settings {
	return loader.Settings{
		PinDir: cfg.PinDir, Connections: cfg.Connections, Timeouts: cfg.Timeouts, HalfOpen: cfg.HalfOpen, IdleResets: cfg.IdleResets, HashSeed: cfg.HashSeed, PortStripe: cfg.PortStripe,
		NoRedirectPeer: cfg.NoRedirectPeer, NoKfuncs: cfg.NoKfuncs, ResetRate: cfg.ResetRate, ForeignFirst: cfg.ForeignFirst, ChallengeFirst: cfg.ChallengeFirst, Log: cfg.Log,
	}
}

// Trial loads every program of this build over its own maps, without touching cfg.PinDir, and
// attaches none. It returns an error if the kernel refuses a program, or if Load could not adopt
// the pinned maps.
func Trial(cfg Config) (*Datapath, error) {
	if err := loader.CheckPins(cfg.settings()); err != nil {
		return nil, err
	}
	cfg.PinDir, cfg.Connections = "", TrialConnections
	d, err := Load(cfg)
	if err != nil {
		return nil, err
	}
	for _, layer3 := range []bool{false, true} {
		for _, egress := range []bool{false, true} {
			if _, err := d.collection.Program(layer3, egress); err != nil {
				return nil, errors.Join(err, d.Close())
			}
			twin, err := d.collection.LoadTracing(layer3, egress)
			if err := errors.Join(err, twin.Close()); err != nil {
				return nil, errors.Join(err, d.Close())
			}
		}
	}
	if _, err := d.XDP.Program(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	if err := d.XDP.TryTracing(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	if err := errors.Join(d.LoadPrograms(), d.LoadCopies(), d.collection.HandleSCTP(), d.collection.HandleQUIC(), d.collection.HandleProxy(), d.TryGTP()); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// openWithout removes the pinned maps, which cannot be adopted, and their attachments, and opens
// new ones.
func openWithout(s loader.Settings, reason error) (*loader.Collection, error) {
	if s.Log != nil {
		s.Log.Warn("pinned maps removed, as --end-connections asks: connections end, counters restart at 0, and clients may get other endpoints", "reason", reason)
	}
	if err := errors.Join(attach.DetachClsact(), pins.Empty(s.PinDir)); err != nil {
		return nil, err
	}
	return loader.Open(s)
}

// load loads the programs that every machine needs, and reads the maps meanwhile.
func (d *Datapath) load(cfg Config) error {
	var sweep *connections.Programs
	adopt := func() (err error) {
		if d.Tables, err = tables.Open(d.collection); err != nil {
			return err
		}
		if d.Routing, err = routing.Open(d.collection); err != nil {
			return err
		}
		if d.Leases, err = routing.OpenLeases(d.collection); err != nil {
			return err
		}
		if d.firewall, err = policy.OpenFirewall(d.collection); err != nil {
			return err
		}
		if d.policies, err = policy.OpenIPsec(d.collection); err != nil {
			return err
		}
		d.Attached, err = policy.OpenAttached(d.collection, d.Tables, d.firewall, d.BumpNextHops)
		return err
	}
	before, failed := d.Drops()
	d.exchange.before = before
	err := errors.Join(failed, loader.RunConcurrently(adopt,
		func() (err error) { sweep, err = connections.LoadSweep(d.collection); return err },
		func() error { return d.collection.LoadFirst() },
	))
	d.Sockets = hostsockets.New(d.collection, d.Tables)
	d.Table = connections.New(d.collection, d.Tables, d.Meter, sweep, d.Hooks, d.Sockets)
	if err != nil {
		return err
	}
	d.XDP = attach.NewXDP(d.collection, d.Routing, d.followCounts, cfg.XDP, &d.exchange.Exchange)
	d.Watchers = observe.NewWatchers(d.collection, d.Tables)
	d.Copies = copies.New(d.collection, d.Tables, d.Table)
	d.Probes = attach.NewProbes(d.collection, d.Hooks)
	d.GTP = attach.NewGTP(d.collection, d.Hooks)
	d.Recorder = observe.NewRecorder(d.collection)
	d.dry = dryrun.New(d.collection, d.Tables, d.firewall)
	d.Tracer = observe.NewTracer(d.collection, d.Hooks, d.XDP)
	if err := errors.Join(d.updateLocal(d.HasLocalEndpoints()), d.adoptTails()); err != nil {
		return err
	}
	return d.collection.CountPerCPU()
}

// followCounts makes variables of the XDP program's object follow those of this process.
func (d *Datapath) followCounts(variables map[string]*ebpf.Variable) error {
	return errors.Join(d.Tables.AddCounts(variables), d.Attached.FollowPorts(variables["ports_attached"]), d.firewall.Follow(variables["rule_count"]), d.policies.Follow(variables["ipsec_count"]))
}

// Close releases the process's hold on the data path. Pinned parts continue to work; the rest ends.
func (d *Datapath) Close() error {
	if d.dry != nil {
		d.dry.Close()
	}
	err := errors.Join(d.Probes.Close(), d.GTP.Close(), d.Hooks.Close(), d.XDP.Close(), d.Sockets.Close(), d.Copies.Close(), d.Table.Close(), d.exchange.Keep())
	d.Tables.Close()
	return errors.Join(err, d.collection.Close())
}

// SetLink sets the kind of next hop of an interface, attached or not. ForgetLink undoes it.
func (d *Datapath) SetLink(i Interface) error {
	return d.Routing.SetLink(i.Index, routing.Link{Peer: i.Peer, Layer3: i.Layer3, Bridge: i.Bridge, BridgePort: i.BridgePort, Queues: i.Queues})
}

// Jiffy returns the duration of one tick of the packet path's clock.
func (d *Datapath) Jiffy() time.Duration { return d.collection.Jiffy() }

// Programs returns the programs at the tc hooks, and their use.
func (d *Datapath) Programs() []loader.Use { return d.collection.Uses() }

// DryRun predicts how packets would be handled.
func (d *Datapath) DryRun() *dryrun.Runner { return d.dry }

// TestRun runs the programs on packets without a network.
func (d *Datapath) TestRun() testrun.Runner { return testrun.Runner{Collection: d.collection} }

// RemovePins removes everything that an earlier Load with this pin directory attached or pinned.
// Packets go to the kernel again, and connections are lost.
func RemovePins(dir string) error {
	if err := pins.CheckOwned(dir); err != nil {
		return err
	}
	if err := attach.DetachClsact(); err != nil {
		return err
	}
	return pins.Remove(dir)
}

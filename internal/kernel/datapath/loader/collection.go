package loader

import (
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/conntrack"
	"loxilb/internal/kernel/datapath/pins"
	"loxilb/internal/kernel/datapath/rows"
)

// Collection is the maps, and the programs for the tc hooks.
type Collection struct {
	Settings
	Maps      bpf.TcMaps
	Variables bpf.TcVariables
	// Growing arrays: blocks of slots, and rows by endpoint id.
	Slots, Endpoints, EndpointTraffics *rows.Array
	EndpointStates                     EndpointStates
	Handshakes                         Handshakes
	Conntrack                          *conntrack.Table // the connection table
	Locations                          *conntrack.LocationMap
	Bell                               *Bell // wakes us from the packet path
	// Hashes that are made when they are needed.
	SNATUsages, EgressEndpoints, Persists *rows.Array
	ServiceLimits, LimitedClients         *rows.Array
	RuleHits                              *rows.Array // counters of firewall rules, which grow
	Leases                                *rows.Array // of VIPs; a hash
	QUICConfigs, QUICServers              *rows.Array
	SCTPVIPs, SCTPPaths                   *rows.Array
	Fresh                                 bool   // all maps are new and empty
	ABI                                   string // as returned by the function ABI

	all         map[string]*ebpf.Map // Maps by name, and the sections of variables
	variables   map[string]*ebpf.Variable
	dropReasons map[uint32]string
	rowCounts   rowCounts
	ruleSet     *ebpf.MapSpec

	sharedCounts map[string]*ebpf.MapSpec // maps whose rows each CPU has, too; until CountPerCPU
	spec         *ebpf.CollectionSpec     // until LoadFirst

	mu       sync.Mutex
	programs map[string]*ebpf.Program // loaded so far
	sctp     tails                    // programs of SCTP packets
	quic     tails
	proxy    tails
}

// Open makes the maps, or adopts those pinned in s.PinDir. No program is loaded yet.
func Open(s Settings) (*Collection, error) {
	if err := s.complete(); err != nil {
		return nil, err
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		s.Log.Debug("memlock limit not raised", "error", err)
	}
	c := &Collection{Settings: s, programs: map[string]*ebpf.Program{}}
	if err := c.open(); err != nil {
		if errors.Is(err, pins.ErrLayout) {
			err = c.explainLoss(err)
		}
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Collection) open() error {
	spec, err := bpf.LoadTc()
	if err != nil {
		return fmt.Errorf("read data path object: %w", err)
	}
	if c.dropReasons, err = enumNames(spec.Types, "drop_reason", "DROP_"); err != nil {
		return err
	}
	if err := c.Configure(spec); err != nil {
		return err
	}
	c.spec, c.ABI = spec, pins.Hash(persistentMaps(spec))
	opts := ebpf.CollectionOptions{}
	if c.Pinned() {
		if opts.Maps.PinPath, err = c.preparePins(spec); err != nil {
			return err
		}
	}
	spec.Maps["whereabouts"].MaxEntries = conntrack.LocationMapWords(spec.Maps["connections"].MaxEntries)
	collection, err := MakeMaps(spec, opts)
	if errors.Is(err, ebpf.ErrMapIncompatible) {
		err = pins.Refuse(err)
	}
	if err != nil {
		return fmt.Errorf("load data path: %w", err)
	}
	c.all, c.variables = maps.Clone(collection.Maps), maps.Clone(collection.Variables)
	if err := errors.Join(collection.Assign(&c.Maps), collection.Assign(&c.Variables)); err != nil {
		return err
	}
	if c.Locations, err = conntrack.OpenLocationMap(c.Maps.Whereabouts); err != nil {
		return fmt.Errorf("load data path: %w", err)
	}
	if c.Bell, err = OpenBell(c.sections(spec), c.Maps.Watchers); err != nil {
		return fmt.Errorf("load data path: %w", err)
	}
	made, err := conntrack.IsInitialized(c.Maps.TableStates)
	if err != nil {
		return fmt.Errorf("load data path: %w", err)
	}
	// The table is made last: if an earlier start was killed before this, its pinned maps are
	// unused.
	c.Fresh = !made
	if err := errors.Join(c.keepPins(spec), c.openArrays(spec), c.drawSecrets()); err != nil {
		return fmt.Errorf("load data path: %w", err)
	}
	return nil
}

// sections returns the variables that are accessed as memory.
func (c *Collection) sections(spec *ebpf.CollectionSpec) BellSections {
	return BellSections{
		Runtime: c.all[runtimeSection], Wakes: spec.Variables["wakes"].Offset, Trials: spec.Variables["trials"].Offset,
		Shared: c.all[SharedSection], Outcomes: spec.Variables["outcomes"].Offset,
	}
}

// openArrays opens the segments that an earlier process made.
func (c *Collection) openArrays(spec *ebpf.CollectionSpec) error {
	array := func(name string, m *ebpf.Map) *rows.Array { return rows.NewArray(name, m, spec.Maps[name].InnerMap) }
	c.Slots, c.Endpoints = array("slots", c.Maps.Slots), array("endpoints", c.Maps.Endpoints)
	c.EndpointStates = EndpointStates{array("endpoint_states", c.Maps.EndpointStates), array("connection_counts", c.Maps.ConnectionCounts)}
	c.EndpointTraffics = array("endpoint_traffics", c.Maps.EndpointTraffics)
	c.Handshakes = Handshakes{array("handshakes", c.Maps.Handshakes), array("handshake_steps", c.Maps.HandshakeSteps)}
	c.SNATUsages, c.EgressEndpoints = array("snat_usages", c.Maps.SnatUsages), array("egress_endpoints", c.Maps.EgressEndpoints)
	c.Persists = array("persists", c.Maps.Persists)
	c.ServiceLimits, c.LimitedClients = array("limits_by_service", c.Maps.LimitsByService), array("limited_clients", c.Maps.LimitedClients)
	c.RuleHits = array("rule_hits", c.Maps.RuleHits)
	c.Leases = array("leases", c.Maps.Leases)
	c.QUICConfigs, c.QUICServers = array("quic_configs", c.Maps.QuicConfigs), array("quic_servers", c.Maps.QuicServers)
	c.SCTPVIPs, c.SCTPPaths = array("sctp_vips", c.Maps.SctpVips), array("sctp_paths", c.Maps.SctpPaths)
	c.ruleSet = spec.Maps["rule_sets"].InnerMap.Copy()
	connections := array("connections", c.Maps.Connections)
	if c.Fresh {
		var err error
		if c.Conntrack, err = conntrack.Make(connections, c.Maps.TableStates, c.Maps.TableCounts, c.Connections); err != nil || !c.Pinned() {
			return err
		}
		return c.warnSize()
	}
	var errs []error
	for _, a := range c.arrays() {
		errs = append(errs, a.Adopt())
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, a := range []*rows.Array{c.Handshakes.Shared, c.Handshakes.PerCPU, c.EndpointStates.PerCPU} { // earlier versions lack these arrays
		if err := rows.Grow(max(0, len(c.Endpoints.Segments())-len(a.Segments())), a); err != nil {
			return err
		}
	}
	var err error
	if c.Conntrack, err = conntrack.Adopt(connections, c.Maps.TableStates, c.Maps.TableCounts); err != nil {
		return err
	}
	return c.warnSize()
}

// warnSize logs that an adopted connection table has another size than requested.
func (c *Collection) warnSize() error {
	entries, err := c.Conntrack.Max()
	if err != nil {
		return err
	}
	if has := entries / conntrack.EntriesPerConnection; has != uint64(c.Connections) {
		c.Log.Warn("the connection table keeps its size, since it holds connections; `loxilb --detach` discards it", "connections", has, "asked", c.Connections)
	}
	return nil
}

func (c *Collection) arrays() []*rows.Array {
	if c.Slots == nil {
		return nil
	}
	return []*rows.Array{c.Slots, c.Endpoints, c.EndpointStates.Shared, c.EndpointStates.PerCPU, c.EndpointTraffics,
		c.Handshakes.Shared, c.Handshakes.PerCPU, c.SNATUsages, c.EgressEndpoints, c.Persists, c.ServiceLimits, c.LimitedClients,
		c.RuleHits, c.Leases, c.QUICConfigs, c.QUICServers, c.SCTPVIPs, c.SCTPPaths}
}

// NewRuleSet makes room for a set of firewall rules, or of policies of IPsec.
func (c *Collection) NewRuleSet() (*ebpf.Map, error) { return ebpf.NewMap(c.ruleSet) }

// DropReasons returns the names of the drop reasons, by index of Maps.Drops.
func (c *Collection) DropReasons() map[uint32]string { return c.dropReasons }

// LoadFirst loads the program for interfaces with a link-layer header, which every machine needs.
func (c *Collection) LoadFirst() error {
	p, err := LoadProgram(c.spec, c.all, programName(false, false))
	if err != nil {
		return fmt.Errorf("load data path: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spec, c.programs[programName(false, false)] = nil, p
	return nil
}

// Layer3 is the name of the ingress program for interfaces without a link-layer header.
const Layer3 = "loxilb_layer3"

// programName returns the name of the program for a hook.
func programName(layer3, egress bool) string {
	name := "loxilb_ether"
	if layer3 {
		name = Layer3
	}
	if egress {
		name += "_out"
	}
	return name
}

// Program returns the program for a hook, loaded on demand: for interfaces with or without (layer3)
// a link-layer header, at ingress or egress.
func (c *Collection) Program(layer3, egress bool) (*ebpf.Program, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := programName(layer3, egress)
	if p := c.programs[name]; p != nil {
		return p, nil
	}
	p, err := c.loadLater(name)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(c.sctp.put(name), c.quic.put(name), c.proxy.put(name)); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	c.programs[name] = p
	return p, nil
}

// loadLater reads the object again: keeping it would take megabytes, and few machines need it.
func (c *Collection) loadLater(name string) (*ebpf.Program, error) {
	spec, err := bpf.LoadTc()
	if err != nil {
		return nil, fmt.Errorf("read data path object: %w", err)
	}
	ShareMaps(spec, c.all)
	p, err := LoadProgram(spec, c.all, name)
	if err != nil {
		return nil, fmt.Errorf("load data path: %w", err)
	}
	return p, nil
}

// Close releases maps and programs. Pinned ones stay.
func (c *Collection) Close() error {
	errs := []error{c.Bell.Close(), c.sctp.close(), c.quic.close(), c.proxy.close()}
	for _, p := range c.programs {
		errs = append(errs, p.Close())
	}
	for _, m := range c.all {
		errs = append(errs, m.Close())
	}
	for _, a := range c.arrays() {
		a.Close()
	}
	return errors.Join(errs...)
}

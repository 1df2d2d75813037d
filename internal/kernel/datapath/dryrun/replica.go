package dryrun

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/conntrack"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/rows"
)

// shared returns the names of the maps that only user space writes: the configuration. A dry run
// has copies of all others.
func shared() []string {
	return []string{
		"services", "vips", "service_ranges", "allowed_sources", "idle_timeouts", "slots", "endpoints", "snat_sources", "bloom_filter", "local_addresses",
		"kept_ports", "egress_endpoints", "default_routes", "links", "persist_timeouts", "limits_by_service", "mss_limits", "secrets",
		"attached_services", "attached_sources", "attached_rules", "attached_ports", "rule_sets", "ipsec_policies",
		"quic_configs", "quic_servers", "sctp_vips",
	}
}

// few is the size of hashes in which a packet adds one row.
const few = 64

// replica is the sandboxed program and the rows of its maps.
type replica struct {
	*loader.Sandbox
	live        *loader.Collection
	rules       Rules
	connections *conntrack.Replica
	// Maps in maps.
	states, perCPU, persists, usages, clients, hits *rows.Array
	cpus                                            int
	known                                           *knownClients
}

func newReplica(live *loader.Collection, rules Rules) (*replica, error) {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, err
	}
	lru := few * uint32(cpus)
	sandbox, err := live.NewSandbox(shared(), map[string]uint32{
		"connections": live.Maps.Connections.MaxEntries(), "whereabouts": 1, "fragments": lru, "fragment_sources": lru,
	}, map[string]uint32{"snat_usages": few, "persists": few, "limited_clients": lru})
	if err != nil {
		return nil, err
	}
	d := &replica{Sandbox: sandbox, live: live, rules: rules, cpus: cpus}
	if err := d.open(); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func (d *replica) open() (err error) {
	array := func(name string, m *ebpf.Map) *rows.Array { return rows.NewArray(name, m, d.Spec(name).InnerMap) }
	d.perCPU = array("connection_counts", d.Maps.ConnectionCounts)
	d.states, d.hits = array("endpoint_states", d.Maps.EndpointStates), array("rule_hits", d.Maps.RuleHits)
	d.usages, d.persists, d.clients = array("snat_usages", d.Maps.SnatUsages), array("persists", d.Maps.Persists), array("limited_clients", d.Maps.LimitedClients)
	if err := rows.Grow(1, d.usages, d.persists, d.clients); err != nil {
		return err
	}
	if d.connections, err = conntrack.NewReplica(d.Maps.Connections, d.Maps.TableStates, d.Maps.TableCounts, d.Spec("connections").InnerMap); err != nil {
		return err
	}
	d.known, err = openKnown(d.live.Maps.KnownClients, d.Maps.KnownClients)
	return err
}

func (d *replica) close() error {
	var err error
	if d.connections != nil {
		err = d.connections.Close()
	}
	if d.known != nil {
		err = errors.Join(err, d.known.live.Close())
	}
	for _, a := range []*rows.Array{d.states, d.perCPU, d.hits, d.usages, d.persists, d.clients} {
		if a != nil {
			a.Close()
		}
	}
	return errors.Join(err, d.Sandbox.Close())
}

// grow grows the rows to the data path's number.
func (d *replica) grow() error {
	return errors.Join(
		rows.Grow(max(0, d.live.EndpointStates.Shared.Count()-d.states.Count()), d.states, d.perCPU),
		rows.Grow(max(0, d.rules.CounterSegments()-d.hits.Count()), d.hits),
	)
}

// none is an id that a run has not set.
const none = ^uint32(0)

// clear resets everything that runs change to the values of the data path, or empties it.
func (d *replica) clear() error {
	if err := errors.Join(d.grow(), d.CopyVariables(d.live)); err != nil {
		return err
	}
	openings := make([]bpf.TcPacketScratch, d.cpus)
	for i := range openings {
		o := openingIn(&openings[i])
		o.Service.Id, o.Choice.Endpoint = none, none
	}
	var open bpf.TcHalfOpen
	errs := []error{
		d.Variables.NextHopsShared.Set(uint32(0)), // results for another packet may be outdated
		d.Maps.PacketScratches.Put(uint32(bpf.TcPacketScratchUseSCRATCH_OPENING), openings),
		d.live.Maps.HalfOpens.Lookup(uint32(0), &open),
		d.Maps.HalfOpens.Put(uint32(0), open),
		d.Maps.HalfOpensKept.Put(uint32(0), make([]bpf.TcHalfOpenKept, d.cpus)),
		d.copyPolicers(), d.clearHashes(),
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("prepare a dry run: %w", err)
	}
	return nil
}

// clearHashes removes rows of earlier packets.
func (d *replica) clearHashes() error {
	return errors.Join(emptyMap[bpf.TcSnatPair, bpf.TcSnatUsage](d.usages.Table()),
		emptyMap[bpf.TcPersistKey, bpf.TcPersistEntry](d.persists.Table()), emptyMap[bpf.TcLimitKey, bpf.TcLimitRow](d.clients.Table()))
}

func emptyMap[K, V any](m *ebpf.Map) error {
	var keys []K
	if err := rows.Each(m, func(k K, _ V) { keys = append(keys, k) }); err != nil {
		return err
	}
	for _, k := range keys {
		if err := m.Delete(k); err != nil {
			return err
		}
	}
	return nil
}

// copyPolicers copies the buckets of policers. Mirrors are not copied: they would send packets.
func (d *replica) copyPolicers() (err error) {
	var some uint64
	if d.live.Maps.Policers.NextKey(nil, &some) != nil {
		return nil // none
	}
	failed := rows.EachBatch(d.live.Maps.Policers, rows.All, func(keys []uint64, values []bpf.TcPolicer) {
		if len(keys) > 0 && err == nil {
			_, err = d.Maps.Policers.BatchUpdate(keys, values, nil)
		}
	})
	return errors.Join(err, failed)
}

// knownClients copies the known clients, as memory: rows are many.
type knownClients struct {
	live     *ebpf.Map // a descriptor of our own
	from, to *ebpf.Memory
	rows     []byte
	stale    bool // the copy may be outdated, or a run has made a client known
}

func openKnown(live, own *ebpf.Map) (k *knownClients, err error) {
	k = &knownClients{}
	if k.live, err = live.Clone(); err != nil {
		return nil, err
	}
	if k.from, err = k.live.Memory(); err == nil {
		k.to, err = own.Memory()
	}
	if err != nil {
		return nil, errors.Join(err, k.live.Close())
	}
	k.rows = make([]byte, k.from.Size())
	return k, nil
}

func (k *knownClients) copy() error {
	if _, err := k.from.ReadAt(k.rows, 0); err != nil {
		return fmt.Errorf("read known clients: %w", err)
	}
	if _, err := k.to.WriteAt(k.rows, 0); err != nil {
		return fmt.Errorf("copy known clients: %w", err)
	}
	k.stale = true
	return nil
}

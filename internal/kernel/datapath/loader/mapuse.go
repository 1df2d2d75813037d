package loader

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/lb/report"
)

// MapUses returns the memory of maps, and for hashes that packets or users fill, the number of
// rows, of which those of large hashes may be maxKept old. By name.
func (c *Collection) MapUses(segmented map[string][]*ebpf.Map) ([]report.MapUse, error) {
	list := make([]report.MapUse, 0, len(c.all))
	for name, m := range c.all {
		if internalMap(name) {
			continue
		}
		use, err := c.mapUse(name, m)
		if err == nil && len(segmented[name]) > 0 {
			use, err = c.segmentUse(name, use, segmented[name])
		}
		if err != nil {
			return nil, fmt.Errorf("inspect map %s: %w", name, err)
		}
		use.Name = name
		if name == "connections" {
			if err := c.connectionUse(&use); err != nil {
				return nil, err
			}
		}
		list = append(list, use)
	}
	slices.SortFunc(list, func(a, b report.MapUse) int { return cmp.Compare(a.Name, b.Name) })
	return list, nil
}

// Segments returns the present segments of growing arrays, and of hashes that are made on demand,
// except for the connection table. By name; none must be made meanwhile.
func (c *Collection) Segments() map[string][]*ebpf.Map {
	out := map[string][]*ebpf.Map{}
	for name, a := range map[string]*rows.Array{
		"slots":             c.Slots,
		"endpoints":         c.Endpoints,
		"endpoint_states":   c.EndpointStates.Shared,
		"connection_counts": c.EndpointStates.PerCPU,
		"endpoint_traffics": c.EndpointTraffics,
		"handshakes":        c.Handshakes.Shared,
		"handshake_steps":   c.Handshakes.PerCPU,
		"snat_usages":       c.SNATUsages,
		"egress_endpoints":  c.EgressEndpoints,
		"persists":          c.Persists,
		"limits_by_service": c.ServiceLimits,
		"limited_clients":   c.LimitedClients,
		"rule_hits":         c.RuleHits,
		"leases":            c.Leases,
		"quic_configs":      c.QUICConfigs,
		"quic_servers":      c.QUICServers,
		"sctp_vips":         c.SCTPVIPs,
		"sctp_paths":        c.SCTPPaths,
	} {
		out[name] = a.Segments()
	}
	return out
}

// mapUse returns the use of a single map.
func (c *Collection) mapUse(name string, m *ebpf.Map) (use report.MapUse, err error) {
	info, err := m.Info()
	if err != nil {
		return use, err
	}
	use.Bytes, _ = info.Memlock()
	switch m.Type() {
	case ebpf.Hash, ebpf.LRUHash:
		use.Max, use.Recent = uint64(m.MaxEntries()), m.Type() == ebpf.LRUHash
		use.Entries, err = c.rowCounts.of(name, func() (uint64, error) { return countRows(m) })
	}
	return use, err
}

// segmentUse adds segments, which have equal sizes, to their outer map. The use of a hash is that
// of its single segment.
func (c *Collection) segmentUse(name string, outer report.MapUse, segments []*ebpf.Map) (report.MapUse, error) {
	use, err := c.mapUse(name, segments[0])
	use.Bytes = outer.Bytes + use.Bytes*uint64(len(segments))
	return use, err
}

// connectionUse adds the groups of the connection table, most of which have no open file
// descriptor.
func (c *Collection) connectionUse(use *report.MapUse) error {
	entries, most, bytes, err := c.Conntrack.Use()
	if err != nil {
		return fmt.Errorf("inspect map connections: %w", err)
	}
	use.Entries, use.Max = entries, most
	use.Bytes += bytes
	return nil
}

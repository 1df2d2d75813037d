package loader

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/conntrack"
	"loxilb/internal/kernel/datapath/pins"
	"loxilb/internal/kernel/datapath/rows"
)

// explainLoss returns an error with the reason why the pinned maps cannot be adopted, and the
// losses of a start without them.
func (c *Collection) explainLoss(reason error) error {
	connections := "all tracked connections end"
	if n, err := c.pinnedConnections(); err == nil {
		connections = fmt.Sprintf("%d tracked connections end", n)
	}
	if services, err := c.pinnedServices(); err == nil && len(services) > 0 {
		connections += ", of " + services
	}
	return fmt.Errorf("%w; --end-connections starts without them: %s, all counters begin at 0, and known clients and their endpoints are forgotten, but services stay; "+
		"or start the version that made them", reason, connections)
}

// maxLossNamed bounds the services that explainLoss names.
const maxLossNamed = 10

// pinnedConnections returns the number of pinned connections, if the layout of their count is that
// of this build.
func (c *Collection) pinnedConnections() (n uint64, err error) {
	err = c.readPinned([]string{"table_states", "table_counts"}, func(_ *ebpf.CollectionSpec, maps []*ebpf.Map) error {
		n, err = conntrack.Count(maps[0], maps[1])
		return err
	})
	return n / conntrack.EntriesPerConnection, err
}

// pinnedServices returns the services with connections and their numbers, if the layouts are those
// of this build.
func (c *Collection) pinnedServices() (text string, err error) {
	names := []string{"services", "endpoints", "endpoint_states", "connection_counts"}
	err = c.readPinned(names, func(spec *ebpf.CollectionSpec, maps []*ebpf.Map) error {
		array := func(i int) *rows.Array {
			return rows.NewArray(names[i], maps[i], spec.Maps[names[i]].InnerMap)
		}
		text, err = activeServices(maps[0], array(1), EndpointStates{Shared: array(2), PerCPU: array(3)})
		return err
	})
	return text, err
}

// readPinned opens pinned maps, if they have the layout that this build reads.
func (c *Collection) readPinned(names []string, read func(*ebpf.CollectionSpec, []*ebpf.Map) error) error {
	spec, err := bpf.LoadTc()
	if err != nil {
		return err
	}
	wanted := map[string]*ebpf.MapSpec{}
	for _, name := range names {
		wanted[name] = spec.Maps[name]
	}
	if err := pins.CheckLayouts(c.PinDir, wanted); err != nil {
		return err
	}
	var maps []*ebpf.Map
	for _, name := range names {
		m, err := ebpf.LoadPinnedMap(filepath.Join(c.MapFolder(), name), nil)
		if err != nil {
			return err
		}
		defer m.Close()
		if m.ValueSize() != wanted[name].ValueSize && wanted[name].InnerMap == nil {
			return fmt.Errorf("map %q has values of %d bytes, not %d", name, m.ValueSize(), wanted[name].ValueSize)
		}
		maps = append(maps, m)
	}
	return read(spec, maps)
}

// activeServices names the services with connections, the largest number first.
func activeServices(services *ebpf.Map, endpoints *rows.Array, states EndpointStates) (string, error) {
	arrays := []*rows.Array{endpoints, states.Shared, states.PerCPU}
	var errs []error
	for _, a := range arrays {
		defer a.Close()
		errs = append(errs, a.Adopt())
	}
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	names := map[uint32]string{}
	err := rows.EachBatch(services, rows.All, func(keys []bpf.TcServiceKey, list []bpf.TcService) {
		for i, s := range list {
			if name := keys[i].String(); names[s.Id] == "" || name < names[s.Id] { // a service with several addresses has several rows
				names[s.Id] = name
			}
		}
	})
	if err != nil {
		return "", err
	}
	active := map[string]uint64{}
	err = states.Each(rows.All, func(ids []uint32, list []bpf.TcEndpointState) {
		for i, s := range list {
			var e bpf.TcEndpoint
			if s.Tracked > 0 && endpoints.Lookup(ids[i], &e) == nil {
				active[cmp.Or(names[e.Service], "services that were deleted")] += s.Tracked
			}
		}
	})
	if err != nil {
		return "", err
	}
	return listActive(active), nil
}

func listActive(active map[string]uint64) string {
	var list []string
	for name := range active {
		list = append(list, name)
	}
	slices.SortFunc(list, func(a, b string) int { return cmp.Or(cmp.Compare(active[b], active[a]), cmp.Compare(a, b)) })
	var named []string
	for _, name := range list[:min(len(list), maxLossNamed)] {
		named = append(named, fmt.Sprintf("%s (%d)", name, active[name]))
	}
	if more := len(list) - maxLossNamed; more > 0 {
		named = append(named, fmt.Sprintf("and %d more services", more))
	}
	return strings.Join(named, ", ")
}

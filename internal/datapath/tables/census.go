package tables

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"loxilb/internal/datapath/bpf"
	"loxilb/internal/datapath/rows"
	"loxilb/internal/lb"
)

// Census reads the counters of all endpoints in batches, where ServiceStats makes system calls for each. It calls yield with those of the
// services that have one of these keys, by the key's place, and returns those of the machine: of every endpoint that there is, or was.
// yield may not change services, which wait meanwhile: 100,000 endpoints take some 100 ms.
func (t *Tables) Census(keys []bpf.TcServiceKey, yield func(place int, s *lb.ServiceStats)) (lb.EndpointStats, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	all, err := t.readAll()
	if err != nil {
		return lb.EndpointStats{}, fmt.Errorf("read endpoint counters: %w", err)
	}
	read := func(id uint32) (counters, error) { return all.of(t, id) }
	for i, key := range keys {
		if s := t.services[key]; s != nil {
			stats := t.serviceStats(s, read)
			yield(i, &stats)
		}
	}
	sum := t.gone
	for id, e := range t.endpoints {
		if e == nil {
			continue
		}
		c, err := read(uint32(id))
		if err != nil {
			return lb.EndpointStats{}, err
		}
		sum.add(c)
	}
	return sum.stats(), nil
}

// rowsRead are counters by endpoint id, but for those of handshakes, which take no system call.
type rowsRead struct {
	states   []bpf.TcEndpointState
	traffics []traffic
}

// trafficBatch is how many rows are read at once, each of which has a part for every CPU.
const trafficBatch = 1024

// readAll leaves out traffic where nothing was ever connected.
func (t *Tables) readAll() (all rowsRead, err error) {
	top := int(t.endpointIDs.Top())
	all.states, all.traffics = make([]bpf.TcEndpointState, top), make([]traffic, top)
	err = rows.EachOf(t.arrays.EndpointStates, top, func(ids []uint32, states []bpf.TcEndpointState) {
		for i, id := range ids {
			all.states[id] = states[i]
		}
	})
	if err != nil {
		return all, err
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return all, err
	}
	keys, perCPU := make([]uint32, trafficBatch), make([]bpf.TcEndpointTraffic, trafficBatch*cpus)
	per := int(t.arrays.EndpointTraffics.PerSegment())
	for n, m := range t.arrays.EndpointTraffics.Segments() {
		first := n * per
		if first >= top {
			break
		}
		used := all.states[first:min(first+per, top)]
		if !slices.ContainsFunc(used, func(s bpf.TcEndpointState) bool { return s.Connections > 0 }) {
			continue
		}
		if err := all.readTraffic(m, first, len(used), keys, perCPU); err != nil {
			return all, err
		}
	}
	return all, nil
}

// readTraffic reads the first rows of a segment whose own first row has this id.
func (r *rowsRead) readTraffic(m *ebpf.Map, first, count int, keys []uint32, perCPU []bpf.TcEndpointTraffic) error {
	var cursor ebpf.MapBatchCursor
	cpus := len(perCPU) / len(keys)
	for count > 0 {
		batch := min(len(keys), count)
		n, err := m.BatchLookup(&cursor, keys[:batch], perCPU[:batch*cpus], nil)
		if err != nil && !rows.IsLast(err) {
			return err
		}
		for i, key := range keys[:n] {
			r.traffics[first+int(key)].addCPUs(perCPU[i*cpus : (i+1)*cpus])
		}
		if err != nil {
			return nil
		}
		count -= n
	}
	return nil
}

// of is what an endpoint has counted.
func (r *rowsRead) of(t *Tables, id uint32) (counters, error) {
	c := counters{traffic: r.traffics[id], connections: r.states[id].Connections, active: r.states[id].Active}
	var err error
	c.shakes, err = t.handshakes.read(id)
	return c, err
}

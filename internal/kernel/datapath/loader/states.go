package loader

import (
	"fmt"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
)

// EndpointStates are the counts of endpoints' connections, by id: a row that all CPUs share plus a
// row of each CPU, which are read as their sum. The rows are not read at the same instant, so a sum
// may miss concurrent counts of two CPUs. The packet path uses only sums.
type EndpointStates struct{ Shared, PerCPU *rows.Array }

// Snapshot returns the current segments, for readers that do not wait while the arrays grow.
func (s EndpointStates) Snapshot() EndpointStates {
	shared, perCPU := *s.Shared, *s.PerCPU
	return EndpointStates{&shared, &perCPU}
}

// Lookup reads the counts of an endpoint.
func (s EndpointStates) Lookup(id uint32, state *bpf.TcEndpointState) error {
	var counts []bpf.TcConnectionCount
	if err := s.Shared.Lookup(id, state); err != nil {
		return err
	}
	if err := s.PerCPU.Lookup(id, &counts); err != nil {
		return err
	}
	addCounts(state, counts)
	return nil
}

// Put sets the counts of an endpoint that has no connections.
func (s EndpointStates) Put(id uint32, state bpf.TcEndpointState) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	if err := s.PerCPU.Put(id, make([]bpf.TcConnectionCount, cpus)); err != nil {
		return err
	}
	return s.Shared.Put(id, state)
}

// addCounts adds the counts of the CPUs to the shared ones. It replaces a negative number of
// connections with 0: the rows of the CPUs are read at different times.
func addCounts(state *bpf.TcEndpointState, counts []bpf.TcConnectionCount) {
	tracked := int64(state.Tracked)
	for i := range counts {
		state.Connections += counts[i].Connections
		state.Active += counts[i].Active
		tracked += counts[i].Tracked
	}
	state.Tracked = uint64(max(0, tracked))
}

// countsAtOnce is the number of rows of each CPU that one system call reads: with 64 CPUs, they
// take 1.5 MB.
const countsAtOnce = 1024

// Each calls f with the counts of the first limit endpoints, some thousand at a time. f must not
// keep them.
func (s EndpointStates) Each(limit int, f func(ids []uint32, states []bpf.TcEndpointState)) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	r := countsReader{array: s.PerCPU, cpus: cpus}
	err = rows.EachOf(s.Shared, limit, func(ids []uint32, states []bpf.TcEndpointState) {
		if r.err == nil {
			r.add(ids, states)
		}
		if r.err == nil {
			f(ids, states)
		}
	})
	if r.err != nil {
		return r.err
	}
	return err
}

// countsReader reads the rows of the CPUs from the first to the last.
type countsReader struct {
	array  *rows.Array
	cpus   int
	keys   []uint32
	values []bpf.TcConnectionCount
	cursor ebpf.MapBatchCursor
	err    error
}

// add adds the rows of these ids, which follow the ids of the previous call, to the shared counts.
func (r *countsReader) add(ids []uint32, states []bpf.TcEndpointState) {
	per := r.array.PerSegment()
	if ids[0]%per == 0 {
		r.cursor = ebpf.MapBatchCursor{}
	}
	segment := int(ids[0] / per)
	if segment >= len(r.array.Segments()) {
		return // a start that was killed has made the shared rows only: no CPU has counted
	}
	for done := 0; done < len(ids); {
		n := min(countsAtOnce, len(ids)-done)
		if len(r.keys) < n {
			r.keys, r.values = make([]uint32, n), make([]bpf.TcConnectionCount, n*r.cpus)
		}
		got, err := r.array.Segments()[segment].BatchLookup(&r.cursor, r.keys[:n], r.values[:n*r.cpus], nil)
		if err != nil && !rows.IsLast(err) || got < n {
			r.err = fmt.Errorf("read counts of CPUs: %d of %d rows: %w", got, n, err)
			return
		}
		for i := range n {
			addCounts(&states[done+i], r.values[i*r.cpus:(i+1)*r.cpus])
		}
		done += n
	}
}

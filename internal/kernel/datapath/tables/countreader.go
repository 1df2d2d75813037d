package tables

import (
	"fmt"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/rows"
)

const (
	countBatch  = 256 // rows read at once
	fewOfASlice = 8   // fewer selected rows per slice are read individually
)

// countReader reads the counters of endpoints, segment by segment, without allocations for each.
// Traffic and steps of handshakes, which have a row per CPU, are read in batches if many rows are
// selected, and otherwise by a system call for each. The tables are locked meanwhile.
type countReader struct {
	tables  *Tables
	wanted  func(id uint32, state *bpf.TcEndpointState) bool
	yield   countYield
	cpus    int
	keys    []uint32
	traffic []bpf.TcEndpointTraffic // a row per CPU, of each endpoint
	steps   []bpf.TcHandshakeProgress
	list    []int // selected rows of the segment
	err     error
}

type countYield func(id uint32, state *bpf.TcEndpointState, moved traffic, steps *bpf.TcHandshakeProgress) error

func (t *Tables) newCountReader(wanted func(uint32, *bpf.TcEndpointState) bool, yield countYield) (*countReader, error) {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("read endpoint counters: %w", err)
	}
	return &countReader{
		tables: t, wanted: wanted, yield: yield, cpus: cpus, keys: make([]uint32, countBatch),
		traffic: make([]bpf.TcEndpointTraffic, countBatch*cpus), steps: make([]bpf.TcHandshakeProgress, countBatch*cpus),
	}, nil
}

// failure returns why some counters were not read: the error of a row, or else of a segment.
func (r *countReader) failure(err error) error {
	if r.err != nil {
		err = r.err
	}
	if err != nil {
		return fmt.Errorf("read endpoint counters: %w", err)
	}
	return nil
}

// segment reads the selected rows of a segment.
func (r *countReader) segment(ids []uint32, states []bpf.TcEndpointState) {
	if r.err != nil {
		return
	}
	r.list = r.list[:0]
	for i, id := range ids {
		if r.tables.endpoint(id) != nil && r.wanted(id, &states[i]) {
			r.list = append(r.list, i)
		}
	}
	traffics, steps := r.tables.arrays.EndpointTraffics, r.tables.arrays.Handshakes.PerCPU
	segment, first := ids[0]/traffics.PerSegment(), ids[0]%traffics.PerSegment()
	if first == 0 && len(r.list)*fewOfASlice > len(ids) {
		r.err = r.batches(traffics.Segments()[segment], steps.Segments()[segment], ids, states)
		return
	}
	for _, i := range r.list {
		if r.err = traffics.Lookup(ids[i], r.traffic[:r.cpus]); r.err == nil {
			r.err = steps.Lookup(ids[i], r.steps[:r.cpus])
		}
		if r.err == nil {
			r.err = r.yieldCounts(ids[i], &states[i], 0)
		}
		if r.err != nil {
			return
		}
	}
}

// batches reads the rows of a segment up to the last selected one.
func (r *countReader) batches(traffics, steps *ebpf.Map, ids []uint32, states []bpf.TcEndpointState) error {
	var atTraffic, atSteps ebpf.MapBatchCursor
	last := r.list[len(r.list)-1]
	for from, next := 0, 0; from <= last; {
		n, err := traffics.BatchLookup(&atTraffic, r.keys, r.traffic, nil)
		if err != nil && !rows.IsLast(err) {
			return err
		}
		more, err := steps.BatchLookup(&atSteps, r.keys, r.steps, nil)
		if err != nil && !rows.IsLast(err) {
			return err
		}
		n = min(n, more) // both have all rows
		for ; next < len(r.list) && r.list[next] < from+n; next++ {
			i := r.list[next]
			if err := r.yieldCounts(ids[i], &states[i], i-from); err != nil {
				return err
			}
		}
		if from += n; err != nil {
			return nil
		}
	}
	return nil
}

// yieldCounts yields an endpoint's counts, which are at this place of the batch.
func (r *countReader) yieldCounts(id uint32, state *bpf.TcEndpointState, place int) error {
	var sum traffic
	at := place * r.cpus
	sum.addCPUs(r.traffic[at : at+r.cpus])
	steps := loader.SumSteps(r.steps[at : at+r.cpus])
	return r.yield(id, state, sum, &steps)
}

package tables

import (
	"fmt"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// EachCount calls yield with the counters of each wanted endpoint; wanted gets its id, its opened
// connections and those in the table. Neither may block. Endpoints that are ending are included.
func (t *Tables) EachCount(wanted func(id uint32, connections, tracked uint64) bool, yield func(*report.EndpointCount)) error {
	var of *service // the service whose key count has
	var count report.EndpointCount
	asked := func(id uint32, state *bpf.TcEndpointState) bool { return wanted(id, state.Connections, state.Tracked) }
	r, err := t.newCountReader(asked, func(id uint32, state *bpf.TcEndpointState, moved traffic) (err error) {
		e := t.endpoint(id)
		if of != e.service {
			of, count.Service = e.service, e.service.userKey()
		}
		count.ID, count.At, count.Connections, count.In, count.Out = id, e.at(), state.Connections, moved.in, moved.out
		now := liveOf(state)
		count.Active, count.Inactive = now.active, now.inactive
		if count.Handshakes, err = t.handshakes.read(id); err == nil {
			yield(&count)
		}
		return err
	})
	if err != nil {
		return err
	}
	return r.failure(t.eachState(func(ids []uint32, states []bpf.TcEndpointState) {
		t.mu.RLock() // for a segment at a time: changes of services do not wait for all
		defer t.mu.RUnlock()
		r.segment(ids, states)
	}))
}

const (
	countBatch  = 256 // rows that are read at once
	fewOfASlice = 8   // one wanted row in so many is cheaper to read by itself
)

// countReader reads the counters of endpoints except for handshakes, segment by segment, without
// allocations for each: traffic, which has a row per CPU, in batches where many are wanted, and
// otherwise by a system call for each. The lock of the tables is held meanwhile.
type countReader struct {
	tables *Tables
	wanted func(id uint32, state *bpf.TcEndpointState) bool
	yield  countYield
	cpus   int
	keys   []uint32
	perCPU []bpf.TcEndpointTraffic
	list   []int // wanted rows of the segment
	err    error
}

type countYield func(id uint32, state *bpf.TcEndpointState, moved traffic) error

func (t *Tables) newCountReader(wanted func(uint32, *bpf.TcEndpointState) bool, yield countYield) (*countReader, error) {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("read endpoint counters: %w", err)
	}
	return &countReader{tables: t, wanted: wanted, yield: yield, cpus: cpus, keys: make([]uint32, countBatch), perCPU: make([]bpf.TcEndpointTraffic, countBatch*cpus)}, nil
}

// failure returns why not all was read: the error of a row, or else that of the segments.
func (r *countReader) failure(err error) error {
	if r.err != nil {
		err = r.err
	}
	if err != nil {
		return fmt.Errorf("read endpoint counters: %w", err)
	}
	return nil
}

// segment reads the wanted rows of a segment.
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
	array := r.tables.arrays.EndpointTraffics
	if m, first := array.Segments()[ids[0]/array.PerSegment()], ids[0]%array.PerSegment(); first == 0 && len(r.list)*fewOfASlice > len(ids) {
		r.err = r.batches(m, ids, states)
		return
	}
	for _, i := range r.list {
		one := r.perCPU[:r.cpus]
		if r.err = array.Lookup(ids[i], one); r.err == nil {
			r.err = r.tell(ids[i], &states[i], one)
		}
		if r.err != nil {
			return
		}
	}
}

// batches reads the rows of a segment up to the last wanted one.
func (r *countReader) batches(m *ebpf.Map, ids []uint32, states []bpf.TcEndpointState) error {
	var cursor ebpf.MapBatchCursor
	last := r.list[len(r.list)-1]
	for from, next := 0, 0; from <= last; {
		n, err := m.BatchLookup(&cursor, r.keys, r.perCPU, nil)
		if err != nil && !rows.IsLast(err) {
			return err
		}
		for ; next < len(r.list) && r.list[next] < from+n; next++ {
			i := r.list[next]
			at := (i - from) * r.cpus
			if err := r.tell(ids[i], &states[i], r.perCPU[at:at+r.cpus]); err != nil {
				return err
			}
		}
		if from += n; err != nil {
			return nil
		}
	}
	return nil
}

// tell hands over an endpoint's counts.
func (r *countReader) tell(id uint32, state *bpf.TcEndpointState, perCPU []bpf.TcEndpointTraffic) error {
	var sum traffic
	sum.addCPUs(perCPU)
	return r.yield(id, state, sum)
}

// userKey returns the service's key as users write it.
func (s *service) userKey() lb.Key {
	k := lb.Key{VIP: s.key.Vip.Netip(), Port: bpf.Port(s.key.Port), Protocol: lb.Protocol(s.key.Protocol), Mark: s.key.Mark}
	if k.Protocol == lb.ICMPv6 {
		k.Protocol = lb.ICMP
	}
	if s.key.Ranged() {
		k.PortMax = s.portMax
	}
	return k
}

// EachEndpointID calls yield with the id of each row of a service, and the user's endpoint that it
// belongs to: an endpoint that is a service has the rows of its own endpoints.
func (t *Tables) EachEndpointID(key bpf.TcServiceKey, yield func(endpoint int, id uint32)) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	s := t.services[key]
	if s == nil {
		return
	}
	parents := s.extras().parents
	for i, e := range s.order {
		if parents != nil {
			i = int(parents[i])
		}
		yield(i, e.id)
	}
}

package tables

import (
	"fmt"
	"math/bits"
	"net/netip"
	"sync"
	"unsafe"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// handshakes reads the counters of handshakes from the packet path's memory, without a system call.
// It is safe for concurrent use, except while segments are added.
type handshakes struct {
	array *rows.Array

	bell *loader.Bell

	mu       sync.Mutex
	mapped   []*ebpf.Memory      // segments
	reported bool                // each service was news once
	changed  map[lb.Key]struct{} // services that were written since the last call for news
}

const handshakeBytes = int(unsafe.Sizeof(bpf.TcHandshakeCounts{}))

// segment returns the memory of one.
func (h *handshakes) segment(n int) (*ebpf.Memory, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.mapped) <= n {
		next := len(h.mapped)
		if next >= len(h.array.Segments()) {
			return nil, fmt.Errorf("read counters of handshakes: %w", ebpf.ErrKeyNotExist)
		}
		m, err := h.array.Segments()[next].Memory()
		if err != nil {
			return nil, fmt.Errorf("map counters of handshakes: %w", err)
		}
		h.mapped = append(h.mapped, m)
	}
	return h.mapped[n], nil
}

// read returns the row of an endpoint.
func (h *handshakes) read(id uint32) (out report.Handshakes, err error) {
	per := h.array.PerSegment()
	m, err := h.segment(int(id / per))
	if err != nil {
		return out, err
	}
	var row bpf.TcHandshakeCounts
	if _, err := m.ReadAt((*[handshakeBytes]byte)(unsafe.Pointer(&row))[:], int64(id%per)*int64(handshakeBytes)); err != nil {
		return out, fmt.Errorf("read counters of handshakes: %w", err)
	}
	return report.Handshakes{
		Opened: row.Opened, Answered: row.Answered, Repeated: row.Repeated, Refused: row.Refused, Reset: row.Reset, Unreachable: row.Unreachable,
	}, nil
}

// Handshakes appends the rows of a service's endpoints, as the data path has them: for an endpoint
// that is a service, the endpoints of that.
func (t *Tables) Handshakes(key bpf.TcServiceKey, out []report.HandshakeRow) ([]report.HandshakeRow, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	s := t.services[key]
	if s == nil {
		return out, nil
	}
	for _, e := range s.order {
		count, err := t.handshakes.read(e.id)
		if err != nil {
			return out, err
		}
		row := report.HandshakeRow{At: e.at(), ID: e.id, Idle: e.weight == 0, Off: e.takes == 0, Count: count, Outcomes: t.handshakes.bell.Outcomes(e.id)}
		out = append(out, row)
	}
	return out, nil
}

// mark marks a service as news, as its endpoints may have changed.
func (h *handshakes) mark(key lb.Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.changed == nil {
		h.changed = map[lb.Key]struct{}{}
	}
	h.changed[key] = struct{}{}
	h.bell.RingHandshake()
}

// drain returns the services marked since the last call. all: every service is news, since this is
// the first call, or the packet path does not report.
func (h *handshakes) drain() (changed map[lb.Key]struct{}, all bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	changed, all = h.changed, !h.reported || h.bell.Deaf()
	h.changed, h.reported = nil, true
	return changed, all
}

// HandshakeNews calls yield with each service whose endpoints may have counted handshakes, or have
// changed, since the last call, some more than once. The cost depends on them, and hardly on the
// number of services.
func (t *Tables) HandshakeNews(yield func(lb.Key)) {
	changed, all := t.handshakes.drain()
	for key := range changed {
		yield(key)
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	if all {
		for _, s := range t.services {
			yield(s.userKey())
		}
	}
	var before *service
	t.handshakes.bell.News(len(t.endpoints), func(id uint32) {
		if e := t.endpoints[id]; e != nil && e.service != before {
			before = e.service
			yield(e.service.userKey())
		}
	})
}

// AwaitHandshakes returns a channel that signals news for HandshakeNews; nil: there is some
// already, or it cannot signal.
func (t *Tables) AwaitHandshakes() <-chan struct{} {
	t.mu.RLock()
	endpoints := len(t.endpoints)
	t.mu.RUnlock()
	awake := t.handshakes.bell.AwaitHandshake(endpoints)
	t.handshakes.mu.Lock()
	defer t.handshakes.mu.Unlock()
	if len(t.handshakes.changed) > 0 {
		return nil
	}
	return awake
}

// NoteJudged marks the services of endpoints as news. ids has a bit for each endpoint.
func (t *Tables) NoteJudged(ids []uint64) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for i, word := range ids {
		for ; word != 0; word &= word - 1 {
			if e := t.endpoints[uint32(i*64+bits.TrailingZeros64(word))]; e != nil {
				t.handshakes.mark(e.service.userKey())
			}
		}
	}
}

// TryEndpoint requests that the next new connection of a service goes to one of its endpoints that
// is out of rotation.
func (t *Tables) TryEndpoint(key bpf.TcServiceKey, at netip.AddrPort) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	s := t.services[key]
	if s == nil {
		return
	}
	for _, e := range s.order {
		if e.at() == at && e.weight > 0 {
			t.handshakes.bell.Try(s.id, e.id)
			return
		}
	}
}

// EachCount calls yield with the counters of each selected endpoint; wanted selects by id, number
// of opened connections and number of those in the table. Neither may block. Endpoints that are
// ending are included.
func (t *Tables) EachCount(wanted func(id uint32, connections, tracked uint64) bool, yield func(*report.EndpointCount)) error {
	var of *service // the service of count's key
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
	countBatch  = 256 // rows read at once
	fewOfASlice = 8   // fewer selected rows per slice are read individually
)

// countReader reads the counters of endpoints except for handshakes, segment by segment, without
// allocations for each. Traffic, which has a row per CPU, is read in batches if many rows are
// selected, and otherwise by a system call for each. The tables are locked meanwhile.
type countReader struct {
	tables *Tables
	wanted func(id uint32, state *bpf.TcEndpointState) bool
	yield  countYield
	cpus   int
	keys   []uint32
	perCPU []bpf.TcEndpointTraffic
	list   []int // selected rows of the segment
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
	array := r.tables.arrays.EndpointTraffics
	if m, first := array.Segments()[ids[0]/array.PerSegment()], ids[0]%array.PerSegment(); first == 0 && len(r.list)*fewOfASlice > len(ids) {
		r.err = r.batches(m, ids, states)
		return
	}
	for _, i := range r.list {
		one := r.perCPU[:r.cpus]
		if r.err = array.Lookup(ids[i], one); r.err == nil {
			r.err = r.yieldCounts(ids[i], &states[i], one)
		}
		if r.err != nil {
			return
		}
	}
}

// batches reads the rows of a segment up to the last selected one.
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
			if err := r.yieldCounts(ids[i], &states[i], r.perCPU[at:at+r.cpus]); err != nil {
				return err
			}
		}
		if from += n; err != nil {
			return nil
		}
	}
	return nil
}

// yieldCounts yields an endpoint's counts.
func (r *countReader) yieldCounts(id uint32, state *bpf.TcEndpointState, perCPU []bpf.TcEndpointTraffic) error {
	var sum traffic
	sum.addCPUs(perCPU)
	return r.yield(id, state, sum)
}

// userKey returns the service's key as users write it.
func (s *service) userKey() lb.Key {
	k := lb.Key{VIP: s.key.Vip.Netip(), Port: bpf.Port(s.key.Port), Protocol: lb.Protocol(s.key.Protocol).OfService(), Mark: s.key.Mark}
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

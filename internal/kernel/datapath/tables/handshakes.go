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
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// handshakes reads the counters of handshakes: per-CPU counters by a system call, the others from
// the packet path's memory. It is safe for concurrent use, except while segments are added.
type handshakes struct {
	arrays loader.Handshakes
	cpus   int

	bell *loader.Bell

	mu       sync.Mutex
	mapped   []*ebpf.Memory      // segments
	reported bool                // each service was reported once
	changed  map[lb.Key]struct{} // services that were written since the last report
}

const handshakeBytes = int(unsafe.Sizeof(bpf.TcHandshakeCounts{}))

// segment returns the memory of segment n.
func (h *handshakes) segment(n int) (*ebpf.Memory, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.mapped) <= n {
		next := len(h.mapped)
		if next >= len(h.arrays.Shared.Segments()) {
			return nil, fmt.Errorf("read counters of handshakes: %w", ebpf.ErrKeyNotExist)
		}
		m, err := h.arrays.Shared.Segments()[next].Memory()
		if err != nil {
			return nil, fmt.Errorf("map counters of handshakes: %w", err)
		}
		h.mapped = append(h.mapped, m)
	}
	return h.mapped[n], nil
}

// stepRows returns memory for the rows of all CPUs.
func (h *handshakes) stepRows() []bpf.TcHandshakeProgress {
	return make([]bpf.TcHandshakeProgress, h.cpus)
}

// readSteps returns the sum of the CPUs' rows of an endpoint, which it reads to memory of stepRows.
func (h *handshakes) readSteps(id uint32, memory []bpf.TcHandshakeProgress) (bpf.TcHandshakeProgress, error) {
	if err := h.arrays.PerCPU.Lookup(id, memory); err != nil {
		return bpf.TcHandshakeProgress{}, fmt.Errorf("read counters of handshakes: %w", err)
	}
	return loader.SumSteps(memory), nil
}

// read returns the counts of an endpoint whose CPUs have counted these steps.
func (h *handshakes) read(id uint32, steps *bpf.TcHandshakeProgress) (out report.Handshakes, err error) {
	per := h.arrays.Shared.PerSegment()
	m, err := h.segment(int(id / per))
	if err != nil {
		return out, err
	}
	var row bpf.TcHandshakeCounts
	if _, err := m.ReadAt((*[handshakeBytes]byte)(unsafe.Pointer(&row))[:], int64(id%per)*int64(handshakeBytes)); err != nil {
		return out, fmt.Errorf("read counters of handshakes: %w", err)
	}
	out = report.Handshakes{
		Opened: row.OpenedBefore + steps.Opened, Answered: row.Answered,
		Repeated: row.Repeated, Refused: row.Refused, Reset: row.Reset, Unreachable: row.Unreachable,
	}
	for bucket, n := range steps.Answered {
		out.Answered[bucket] += n
	}
	return out, nil
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
	memory := t.handshakes.stepRows()
	for _, e := range s.order {
		steps, err := t.handshakes.readSteps(e.id, memory)
		if err != nil {
			return out, err
		}
		count, err := t.handshakes.read(e.id, &steps)
		if err != nil {
			return out, err
		}
		row := report.HandshakeRow{Addr: e.at(), ID: e.id, Idle: e.weight == 0, Inactive: e.currentWeight == 0, Count: count, Outcomes: t.handshakes.bell.Outcomes(e.id)}
		row.Completed = uint32(steps.Completed)
		out = append(out, row)
	}
	return out, nil
}

// markChanged marks a service as changed, since its endpoints may have changed.
func (h *handshakes) markChanged(key lb.Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.changed == nil {
		h.changed = map[lb.Key]struct{}{}
	}
	h.changed[key] = struct{}{}
	h.bell.RingHandshake()
}

// takeChanged returns the services marked since the last call. all means that every service counts
// as changed: this is the first call, or the packet path does not report.
func (h *handshakes) takeChanged() (changed map[lb.Key]struct{}, all bool) {
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
	changed, all := t.handshakes.takeChanged()
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

// AwaitHandshakes returns a channel that signals a change for HandshakeNews; nil: there is a change
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

// MarkJudged marks the services of endpoints as changed. ids has a bit for each endpoint.
func (t *Tables) MarkJudged(ids []uint64) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for i, word := range ids {
		for ; word != 0; word &= word - 1 {
			if e := t.endpoints[uint32(i*64+bits.TrailingZeros64(word))]; e != nil {
				t.handshakes.markChanged(e.service.userKey())
			}
		}
	}
}

// TryEndpoint sends the next new connection of a service to one of its endpoints that is out of
// rotation.
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

// EachCount calls yield with the counters of each selected endpoint; wanted selects by id, and by
// the numbers of opened connections and of connections in the table. Neither function may block.
// Endpoints that are ending are included.
func (t *Tables) EachCount(wanted func(id uint32, connections, tracked uint64) bool, yield func(*report.EndpointCount)) error {
	var of *service // the service of count's key
	var count report.EndpointCount
	asked := func(id uint32, state *bpf.TcEndpointState) bool { return wanted(id, state.Connections, state.Tracked) }
	r, err := t.newCountReader(asked, func(id uint32, state *bpf.TcEndpointState, moved traffic, steps *bpf.TcHandshakeProgress) (err error) {
		e := t.endpoint(id)
		if of != e.service {
			of, count.Service = e.service, e.service.userKey()
		}
		count.ID, count.Addr, count.Connections, count.In, count.Out = id, e.at(), state.Connections, moved.in, moved.out
		now := liveOf(state)
		count.Active, count.Inactive = now.active, now.inactive
		if count.Handshakes, err = t.handshakes.read(id, steps); err == nil {
			yield(&count)
		}
		return err
	})
	if err != nil {
		return err
	}
	return r.failure(t.eachState(func(ids []uint32, states []bpf.TcEndpointState) {
		t.mu.RLock() // one segment at a time, so changes of services do not wait for all
		defer t.mu.RUnlock()
		r.segment(ids, states)
	}))
}

// userKey returns the service's key as users write it.
func (s *service) userKey() lb.Key {
	k := lb.Key{VIP: s.key.Vip.Netip(), Port: bpf.Port(s.key.Port), Protocol: lb.Protocol(s.key.Protocol).OfService(), Mark: s.key.Mark}
	if s.key.Ranged() {
		k.PortMax = s.portMax
	}
	return k
}

// EachEndpointID calls yield with the id of each row of a service, and the user's endpoint to which
// it belongs: an endpoint that is a service has the rows of its own endpoints.
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

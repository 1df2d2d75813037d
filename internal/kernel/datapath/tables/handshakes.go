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
// It is safe for concurrent use while nobody makes segments.
type handshakes struct {
	array *rows.Array

	bell *loader.Bell

	mu      sync.Mutex
	mapped  []*ebpf.Memory      // segments
	told    bool                // each service was news once
	changed map[lb.Key]struct{} // services that were written since the last call for news
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

// note marks a service as news, as its endpoints may have changed.
func (h *handshakes) note(key lb.Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.changed == nil {
		h.changed = map[lb.Key]struct{}{}
	}
	h.changed[key] = struct{}{}
	h.bell.RingHandshake()
}

// take returns the marked services since the last call. all: each service is news, as it is the
// first call, or the packet path does not report.
func (h *handshakes) take() (changed map[lb.Key]struct{}, all bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	changed, all = h.changed, !h.told || h.bell.Deaf()
	h.changed, h.told = nil, true
	return changed, all
}

// HandshakeNews calls yield with each service whose endpoints may have counted something, or have
// changed, since the last call, some of them more than once. The cost depends on them, and hardly
// on the number of services.
func (t *Tables) HandshakeNews(yield func(lb.Key)) {
	changed, all := t.handshakes.take()
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

// AwaitHandshakes returns a channel that becomes ready when HandshakeNews has any; nil: it has
// some, or cannot signal.
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
				t.handshakes.note(e.service.userKey())
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

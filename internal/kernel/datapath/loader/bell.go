package loader

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb/report"
)

const (
	wordBits = 64
	never    = math.MaxInt64 // WAKE_NEVER
)

// Bell wakes waiters when the packet path signals, and lists the endpoints that have counted
// handshakes (bpf/observe/wake.h). So an idle daemon sleeps instead of polling. Methods are safe
// for concurrent use.
type Bell struct {
	row                *bpf.TcWake // in memory that programs write
	trials             *[bpf.TcSampleLayoutTRIALS]uint64
	outcomes           *[bpf.TcSampleLayoutOUTCOME_ROWS]bpf.TcEndpointOutcomes
	ring               *ringbuf.Reader
	listening          sync.WaitGroup
	handshake, entries chan struct{} // capacity 1
	deaf               atomic.Bool
}

// BellSections are the programs' variables, with the positions of a Bell's variables.
type BellSections struct {
	Runtime, Shared         *ebpf.Map
	Wakes, Trials, Outcomes uint32
}

// OpenBell opens the bell of programs with these variables and rings. There must be no other
// listener.
func OpenBell(s BellSections, rings *ebpf.Map) (*Bell, error) {
	memory, err := mapSection(s.Runtime)
	if err != nil {
		return nil, err
	}
	shared, err := mapSection(s.Shared)
	if err != nil {
		return nil, errors.Join(err, unix.Munmap(memory))
	}
	bell, err := ebpf.NewMap(&ebpf.MapSpec{Name: "bell", Type: ebpf.RingBuf, MaxEntries: uint32(os.Getpagesize())})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a bell for the packet path: %w", err), unix.Munmap(memory), unix.Munmap(shared))
	}
	defer bell.Close() // the programs and the reader keep it open
	ring, err := ringbuf.NewReader(bell)
	if err == nil {
		if err = rings.Put(uint32(bpf.TcRingBELL), bell); err != nil {
			err = errors.Join(err, ring.Close())
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen to the packet path: %w", err), unix.Munmap(memory), unix.Munmap(shared))
	}
	b := &Bell{
		row: (*bpf.TcWake)(unsafe.Pointer(&memory[s.Wakes])), trials: (*[bpf.TcSampleLayoutTRIALS]uint64)(unsafe.Pointer(&memory[s.Trials])),
		outcomes: (*[bpf.TcSampleLayoutOUTCOME_ROWS]bpf.TcEndpointOutcomes)(unsafe.Pointer(&shared[s.Outcomes])),
		ring:     ring, handshake: make(chan struct{}, 1), entries: make(chan struct{}, 1),
	}
	for _, m := range [][]byte{memory, shared} {
		runtime.AddCleanup(b, func(memory []byte) { _ = unix.Munmap(memory) }, m) // not in Close: there may be readers
	}
	atomic.StoreInt64(&b.row.Entries, never)
	b.listening.Go(b.listen)
	return b, nil
}

// Close stops listening.
func (b *Bell) Close() error {
	if b == nil {
		return nil
	}
	err := b.ring.Close()
	b.listening.Wait()
	return err
}

// listen dispatches wake-ups.
func (b *Bell) listen() {
	var r ringbuf.Record
	for {
		switch err := b.ring.ReadInto(&r); {
		case errors.Is(err, os.ErrClosed):
			return
		case err != nil || len(r.RawSample) < 4: // waiters also check periodically
			continue
		}
		switch bpf.TcWakeReason(binary.NativeEndian.Uint32(r.RawSample)) {
		case bpf.TcWakeReasonWAKE_HANDSHAKE:
			b.RingHandshake()
		case bpf.TcWakeReasonWAKE_ENTRIES:
			ring(b.entries)
		}
	}
}

func ring(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // a signal is pending
	}
}

// drain discards an earlier signal.
func drain(c chan struct{}) {
	select {
	case <-c:
	default:
	}
}

// RingHandshake acts like the packet path when an endpoint has counted a handshake.
func (b *Bell) RingHandshake() { ring(b.handshake) }

// Deafen sets whether programs of an earlier version run, which do not signal. Then no waiter may
// sleep.
func (b *Bell) Deafen(deaf bool) { b.deaf.Store(deaf) }

// Deaf reports whether programs run that do not signal.
func (b *Bell) Deaf() bool { return b.deaf.Load() }

// News calls yield with each endpoint below limit that has counted a handshake event since the last
// call. Counts up to the event are visible.
func (b *Bell) News(limit int, yield func(endpoint uint32)) {
	for i := range b.words(limit) {
		word := &b.row.Handshakes[i]
		if atomic.LoadUint64(word) == 0 {
			continue
		}
		for set := atomic.SwapUint64(word, 0); set != 0; set &= set - 1 {
			yield(uint32(i*wordBits + bits.TrailingZeros64(set)))
		}
	}
}

func (b *Bell) words(limit int) int {
	return min((limit+wordBits-1)/wordBits, len(b.row.Handshakes))
}

// AwaitHandshake returns a channel that signals when an endpoint below limit counts a handshake
// event. It returns nil if one has already, or if programs do not signal.
func (b *Bell) AwaitHandshake(limit int) <-chan struct{} {
	if b.Deaf() {
		return nil
	}
	drain(b.handshake)
	atomic.StoreUint32(&b.row.Handshake, 1)
	for i := range b.words(limit) {
		if atomic.LoadUint64(&b.row.Handshakes[i]) != 0 {
			return nil
		}
	}
	return b.handshake
}

// mapSection maps variables.
func mapSection(section *ebpf.Map) ([]byte, error) {
	memory, err := unix.Mmap(section.FD(), 0, int(section.ValueSize()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map variables of the packet path: %w", err)
	}
	return memory, nil
}

// Outcomes returns the outcomes of connections with an endpoint. Endpoints with high ids have none.
func (b *Bell) Outcomes(endpoint uint32) (out report.Outcomes) {
	if int(endpoint) >= len(b.outcomes) {
		return out
	}
	row := &b.outcomes[endpoint]
	return report.Outcomes{
		Clients: atomic.LoadUint32(&row.Clients), Served: atomic.LoadUint32(&row.Served), Stalled: atomic.LoadUint32(&row.Stalled),
		StalledClients: row.StalledClients,
	}
}

// ForgetOutcomes clears the outcomes for the next endpoint with the id.
func (b *Bell) ForgetOutcomes(endpoint uint32) {
	if int(endpoint) < len(b.outcomes) {
		b.outcomes[endpoint] = bpf.TcEndpointOutcomes{}
	}
}

// Try sends the next new connection of a service to an endpoint (bpf/open/trial.h). If two services
// share a place, the later call wins.
func (b *Bell) Try(service, endpoint uint32) {
	atomic.StoreUint64(&b.trials[service%uint32(len(b.trials))], uint64(service)<<32|uint64(endpoint+1))
}

// AwaitEntries returns a channel that signals when the connection table has about this many
// entries, or slightly more, since CPUs count separately. If it has them already, the next new
// entry signals. It returns nil if programs do not signal.
func (b *Bell) AwaitEntries(n int64) <-chan struct{} {
	if b.Deaf() {
		return nil
	}
	drain(b.entries)
	atomic.StoreInt64(&b.row.Entries, n)
	return b.entries
}

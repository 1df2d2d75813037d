package rows

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
)

const (
	words  = len(bpf.TcBloom{}.Bits)
	factor = uint64(bpf.TcHashFactorHASH_FACTOR)

	bitsAt          = int64(unsafe.Offsetof(bpf.TcBloom{}.Bits))
	nextAt          = int64(unsafe.Offsetof(bpf.TcBloom{}.Next))
	wildcardsAt     = int64(unsafe.Offsetof(bpf.TcBloom{}.Wildcards))
	buildingAt      = int64(unsafe.Offsetof(bpf.TcBloom{}.Building))
	nextWildcardsAt = int64(unsafe.Offsetof(bpf.TcBloom{}.NextWildcards))
	keptAt          = int64(unsafe.Offsetof(bpf.TcBloom{}.Kept))
)

// allPorts replaces a port.
const allPorts = uint32(bpf.TcBloomLayoutBLOOM_ALL_PORTS)

// FilterKey is what a bit stands for: packets to or from an address and port, all ports of an
// address, or a port of every address.
type FilterKey struct {
	addr bpf.TcIpAddr
	port uint32 // network byte order
}

// PortKey returns a port, in network byte order, of an address; if that is zero, of every address.
func PortKey(a bpf.TcIpAddr, port uint16) FilterKey { return FilterKey{a, uint32(port)} }

// AllPortsKey returns the key of all ports of an address.
func AllPortsKey(a bpf.TcIpAddr) FilterKey { return FilterKey{a, allPorts} }

func (k FilterKey) isWildcard() bool { return k.port == allPorts || k.addr == bpf.TcIpAddr{} }

func (k FilterKey) String() string {
	addr := "every address"
	if k.addr != (bpf.TcIpAddr{}) {
		addr = k.addr.Netip().String()
	}
	if k.port == allPorts {
		return "all ports of " + addr
	}
	return fmt.Sprintf("port %d of %s", bpf.Port(uint16(k.port)), addr)
}

// bit returns the number of the key's bit: bloom_bit in bpf/filter/bloom.h.
func (k FilterKey) bit() uint32 {
	high := uint64(k.addr.Word[0]) | uint64(k.addr.Word[1])<<32
	low := uint64(k.addr.Word[2]) | uint64(k.addr.Word[3])<<32
	return uint32((high*factor ^ low ^ uint64(k.port)) * factor >> (64 - bits.Len(uint(words*64-1))))
}

// filterSet is a filter in the daemon's memory.
type filterSet struct {
	words     []uint64
	wildcards bool
}

func (s *filterSet) add(k FilterKey) {
	bit := k.bit()
	s.words[bit/64] |= 1 << (bit % 64)
	s.wildcards = s.wildcards || k.isWildcard()
}

// Filter is the filter by which the packet path recognizes packets that belong to no connection and
// no service (bpf/filter/bloom.h).
//
// A bit is set before its row is written, and cleared when neither a row nor an entry of the
// connection table needs it. The next filter is made of all existing rows, the sweep adds the keys
// of entries, and then it replaces the first. The sweep misses no entry: entries only move onwards
// while the table grows.
//
// It is not safe for concurrent use.
type Filter struct {
	memory  *ebpf.Memory
	changed bool        // some bits may have become unneeded since the last filter was made
	added   []FilterKey // since Start; nil: no next filter is being made
}

// OpenFilter begins with an empty filter if there is no connection yet. Otherwise it passes all
// packets until the sweep has found what the connections need: they may belong to services that an
// earlier process removed, and that may have left no filter.
func OpenFilter(m *ebpf.Map, fresh bool) (*Filter, error) {
	memory, err := m.Memory()
	if err != nil {
		return nil, fmt.Errorf("map the filter of addresses: %w", err)
	}
	f := &Filter{memory: memory, changed: !fresh}
	f.setFlag(buildingAt, false)
	if !fresh {
		f.write(bitsAt, slices.Repeat([]uint64{^uint64(0)}, words))
	}
	return f, nil
}

// Add must be called before a row is written that packets find by the key.
func (f *Filter) Add(k FilterKey) {
	if f.added != nil {
		f.added = append(f.added, k)
	}
	if k.isWildcard() {
		f.setFlag(wildcardsAt, true)
	}
	bit := k.bit()
	at, mask := bitsAt+int64(bit/64*8), uint64(1)<<(bit%64)
	if word := f.word(at); word&mask == 0 {
		f.setWord(at, word|mask)
	}
}

// Has reports whether the filter in force has the key.
func (f *Filter) Has(k FilterKey) bool {
	bit := k.bit()
	return f.word(bitsAt+int64(bit/64*8))&(1<<(bit%64)) != 0 && (!k.isWildcard() || f.flag(wildcardsAt))
}

// Changed must be called after rows were removed, whose bits may be unused now.
func (f *Filter) Changed() { f.changed = true }

// Start begins the next filter, from the keys of rows, if the one in force may have unneeded bits;
// it continues one that was begun. After it returns true, the caller must report the following
// sweep by Swept, or else call Abort. Packets that have found a removed row must be done before
// that sweep.
func (f *Filter) Start(rows func(add func(FilterKey))) bool {
	if f.added != nil {
		return true
	}
	if !f.changed {
		return false
	}
	next := filterSet{words: make([]uint64, words)}
	rows(next.add)
	f.changed = false
	if !f.exceeds(next) {
		return false
	}
	f.write(nextAt, next.words)
	f.setFlag(nextWildcardsAt, next.wildcards)
	f.setFlag(keptAt, false)
	f.setFlag(buildingAt, true)
	f.added = []FilterKey{}
	return true
}

// Abort discards the next filter: packets in flight may add entries that the sweep has not seen.
func (f *Filter) Abort() {
	f.setFlag(buildingAt, false)
	f.added, f.changed = nil, true
}

// Swept must be called when the sweep has visited the whole table. It puts the next filter in
// force.
func (f *Filter) Swept() {
	if f.added == nil {
		return
	}
	f.setFlag(buildingAt, false)
	next := filterSet{words: f.read(nextAt), wildcards: f.flag(nextWildcardsAt)}
	for _, k := range f.added {
		next.add(k)
	}
	f.added = nil
	f.changed = f.changed || f.flag(keptAt) // until the entries that need these bits have ended
	f.setFlag(wildcardsAt, f.flag(wildcardsAt) || next.wildcards)
	f.write(bitsAt, next.words)
	f.setFlag(wildcardsAt, next.wildcards)
}

// exceeds reports whether the filter in force has a bit that another one lacks.
func (f *Filter) exceeds(other filterSet) bool {
	for i, word := range f.read(bitsAt) {
		if word&^other.words[i] != 0 {
			return true
		}
	}
	return f.flag(wildcardsAt) && !other.wildcards
}

func (f *Filter) read(at int64) []uint64 {
	b := make([]byte, words*8)
	f.check(f.memory.ReadAt(b, at))
	out := make([]uint64, words)
	for i := range out {
		out[i] = binary.NativeEndian.Uint64(b[8*i:])
	}
	return out
}

func (f *Filter) write(at int64, list []uint64) {
	b := make([]byte, 0, words*8)
	for _, word := range list {
		b = binary.NativeEndian.AppendUint64(b, word)
	}
	f.check(f.memory.WriteAt(b, at))
}

func (f *Filter) word(at int64) uint64 {
	var b [8]byte
	f.check(f.memory.ReadAt(b[:], at))
	return binary.NativeEndian.Uint64(b[:])
}

func (f *Filter) setWord(at int64, word uint64) {
	f.check(f.memory.WriteAt(binary.NativeEndian.AppendUint64(nil, word), at))
}

func (f *Filter) flag(at int64) bool {
	var b [4]byte
	f.check(f.memory.ReadAt(b[:], at))
	return binary.NativeEndian.Uint32(b[:]) != 0
}

func (f *Filter) setFlag(at int64, on bool) {
	n := uint32(0)
	if on {
		n = 1
	}
	f.check(f.memory.WriteAt(binary.NativeEndian.AppendUint32(nil, n), at))
}

// check panics on an error: memory within the map can always be read and written.
func (f *Filter) check(_ int, err error) {
	if err != nil {
		panic(fmt.Sprintf("the filter of addresses: %v", err))
	}
}

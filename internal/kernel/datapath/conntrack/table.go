// Package conntrack has the connection table as user space sees it: its rows, its size, and its
// growth. bpf/table/table.h explains rows, buckets and groups.
package conntrack

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"loxilb/internal/host/machine"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
)

// Table is the connection table. Methods are safe for concurrent use, except for Extend.
type Table struct {
	groups        *rows.Array
	state, counts *ebpf.Map
	memoryLeft    func() uint64
}

const (
	// EntriesPerConnection is one for each direction.
	EntriesPerConnection = uint64(bpf.TcTableLayoutENTRIES_PER_CONNECTION)

	rowsPerGroup = uint64(rowsPerBucket) * uint64(perGroup)
	// A table grows when it is 72 percent full, to be 68 percent full: then one of 4,000 to 40,000
	// groups is full, and its connections have their other home.
	fullPercent, goalPercent = 72, 68
	// firstGroups bounds the initial table: 32,000 entries.
	firstGroups = 132
	// countBatch is the number of entries that a CPU counts separately, in tables from largeTable
	// entries on.
	countBatch, largeTable = 32, 65536
)

// Groups returns the maximum number of groups of a table for this number of connections.
func Groups(connections int) uint32 {
	return groupsFor(uint64(connections) * EntriesPerConnection)
}

// groupsFor returns the number of groups for this number of entries, with room to spare.
func groupsFor(entries uint64) uint32 {
	const perHundred = rowsPerGroup * goalPercent
	return uint32((100*entries + perHundred - 1) / perHundred)
}

// Make makes an empty table for at most this number of connections.
func Make(groups *rows.Array, state, counts *ebpf.Map, connections int) (*Table, error) {
	t := &Table{groups: groups, state: state, counts: counts, memoryLeft: machine.MemoryLeft}
	first := min(groups.MaxSegments(), firstGroups)
	if err := groups.GrowReleased(first); err != nil {
		return nil, err
	}
	// the outer map may be that of a start that was killed before it made the table
	most := int64(min(uint64(connections)*EntriesPerConnection, uint64(groups.MaxSegments())*rowsPerGroup*goalPercent/100))
	batch := uint32(1)
	if most >= largeTable {
		batch = countBatch
	}
	row := bpf.TcTableState{Size: pack(uint32(first)), Seeds: newSeeds(), CountBatch: batch, EntriesMax: most, Skew: Skew(), HasHomes: 1, ByClient: ^uint64(0)}
	if err := state.Put(uint32(0), row); err != nil {
		return nil, fmt.Errorf("make connection table: %w", err)
	}
	return t, nil
}

// IsInitialized reports whether an earlier process has created the table.
func IsInitialized(state *ebpf.Map) (bool, error) {
	s, err := (&Table{state: state}).read()
	return err == nil && s.Size != 0, err
}

// Adopt returns the table that an earlier process made.
func Adopt(groups *rows.Array, state, counts *ebpf.Map) (*Table, error) {
	t := &Table{groups: groups, state: state, counts: counts, memoryLeft: machine.MemoryLeft}
	if err := groups.AdoptReleased(); err != nil {
		return nil, err
	}
	s, err := t.read()
	if err != nil {
		return nil, err
	}
	if s.Skew != Skew() {
		return nil, fmt.Errorf("connection table: buckets begin %d bytes into their values, but the kernel's BTF now gives %d: is /sys/kernel/btf/vmlinux readable? If so, run loxilb --detach, which ends connections, and start again", s.Skew, Skew())
	}
	if n, have := s.goal(), groups.Count(); n == 0 || int(n) > have {
		return nil, fmt.Errorf("connection table: want %d groups, found %d", n, have)
	}
	return t, nil
}

type state bpf.TcTableState

const sizeBits = bpf.TcTableLayoutSIZE_BITS

// pack returns the size word of a table that does not grow.
func pack(groups uint32) uint64 {
	n := uint64(groups)
	return n | n<<sizeBits | n<<(2*sizeBits)
}

func (s *state) groups() uint32 { return uint32(s.Size & (1<<sizeBits - 1)) }

func (s *state) goal() uint32 { return uint32(s.Size >> sizeBits & (1<<sizeBits - 1)) }

// inUse returns the number of groups that may have entries. All of them exist.
func (s *state) inUse() int { return int(max(s.groups(), s.goal())) }

func (t *Table) read() (*state, error) {
	var s state
	if err := t.state.Lookup(uint32(0), (*bpf.TcTableState)(&s)); err != nil {
		return nil, fmt.Errorf("read the size of the connection table: %w", err)
	}
	return &s, nil
}

// Max returns the maximum number of entries: two for each connection.
func (t *Table) Max() (uint64, error) {
	s, err := t.read()
	if err != nil {
		return 0, err
	}
	return uint64(s.EntriesMax), nil
}

// Len returns the number of entries.
func (t *Table) Len() (uint64, error) {
	s, err := t.read()
	if err != nil {
		return 0, err
	}
	var own []int64
	if err := t.counts.Lookup(uint32(0), &own); err != nil {
		return 0, fmt.Errorf("count connections: %w", err)
	}
	n := s.Entries
	for _, c := range own {
		n += c
	}
	return uint64(max(0, n)), nil
}

// Use returns the number of entries, their maximum, and the memory of the groups.
func (t *Table) Use() (entries, most, bytes uint64, err error) {
	groups, err := t.Groups()
	if err != nil {
		return 0, 0, 0, err
	}
	if entries, err = t.Len(); err != nil {
		return 0, 0, 0, err
	}
	if most, err = t.Max(); err != nil {
		return 0, 0, 0, err
	}
	group, err := t.groups.Open(0)
	if err != nil {
		return 0, 0, 0, err
	}
	defer func() { err = errors.Join(err, rows.Close(group)) }()
	info, err := group.Info()
	if err != nil {
		return 0, 0, 0, fmt.Errorf("inspect the connection table: %w", err)
	}
	each, _ := info.Memlock()
	return entries, most, each * uint64(groups), nil
}

// Count returns the number of entries in the table of these maps, even if this build cannot adopt
// it.
func Count(state, counts *ebpf.Map) (uint64, error) {
	return (&Table{state: state, counts: counts}).Len()
}

// Buckets returns the number of buckets in use.
func (t *Table) Buckets() (uint32, error) {
	s, err := t.read()
	if err != nil {
		return 0, err
	}
	return uint32(s.inUse()) * perGroup, nil
}

// GroupsFor returns the number of groups that the table should have for this number of entries.
// growing reports whether it has fewer.
func (t *Table) GroupsFor(entries uint64) (goal uint32, growing bool, err error) {
	s, err := t.read()
	if err != nil {
		return 0, false, err
	}
	if s.goal() != s.groups() {
		return s.goal(), true, nil
	}
	goal = targetGroups(s.groups(), entries, uint32(t.groups.MaxSegments()))
	return goal, goal > s.groups(), nil
}

// targetGroups returns the number of groups that a table should have.
func targetGroups(groups uint32, entries uint64, most uint32) uint32 {
	if 100*entries < fullPercent*uint64(groups)*rowsPerGroup {
		return groups
	}
	return max(groups, min(groupsFor(entries), most))
}

// Room returns the number of entries at which the table must grow.
func (t *Table) Room() (uint64, error) {
	s, err := t.read()
	if err != nil {
		return 0, err
	}
	return fullPercent * uint64(s.groups()) * rowsPerGroup / 100, nil
}

// MaxUncounted returns the maximum number of entries that the shared count lacks, since each CPU
// counts some separately.
func MaxUncounted() int64 { return int64(countBatch * runtime.NumCPU()) }

// reserveBytes is the memory that must be left after the table has been extended: if the table used
// up the memory of a control group, the kernel would kill the daemon.
const reserveBytes = 32 << 20

// groupBytes is the kernel's memory of a group, whose pages are not shared.
const groupBytes = (uint64(perGroup)*uint64(unsafe.Sizeof(element{})) + 4095) &^ 4095

// Extend makes groups up to this number; fewer if it fails. The kernel waits 10 ms and more for it.
func (t *Table) Extend(groups uint32) error {
	have := uint64(t.groups.Count())
	if uint64(groups) <= have {
		return nil
	}
	left := t.memoryLeft()
	room := have + (left-min(left, reserveBytes))/groupBytes
	if uint64(groups) <= room {
		return t.groups.GrowReleased(int(groups))
	}
	err := fmt.Errorf("%d MB of memory are left, %d MB more are needed, and %d MB must stay free: %w",
		left>>20, (uint64(groups)-have)*groupBytes>>20, reserveBytes>>20, unix.ENOMEM)
	if !isWorthMoving(have, room) {
		return err
	}
	return errors.Join(t.groups.GrowReleased(int(room)), err)
}

// isWorthMoving reports whether growth to more groups is worth its time: it moves all entries.
func isWorthMoving(groups, more uint64) bool { return more >= groups+groups/16 }

// Part returns the number of groups that the table can grow to after Extend has failed; false: it
// is too small.
func (t *Table) Part() (groups uint32, ok bool) {
	s, err := t.read()
	groups = uint32(t.groups.Count())
	return groups, err == nil && isWorthMoving(uint64(s.inUse()), uint64(groups))
}

// LimitMemory makes Extend believe that there is memory for so many groups in all, for tests.
func (t *Table) LimitMemory(groups int) {
	t.memoryLeft = func() uint64 { return reserveBytes + uint64(max(0, groups-t.groups.Count()))*groupBytes }
}

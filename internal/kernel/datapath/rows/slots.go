package rows

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"time"

	"loxilb/internal/kernel/datapath/bpf"
)

const (
	// SlotsPerSegment is the length of the longest table.
	SlotsPerSegment = uint32(bpf.TcLimitSLOTS_PER_SEGMENT)
	slotsPerBlock   = uint32(bpf.TcLimitSLOTS_PER_BLOCK)
)

// Slots allocates ranges of the slots map, and makes segments on demand. A freed range is
// quarantined like a freed id. A range begins at a block, and takes whole blocks.
//
// An inner map for each service would be slower: updating an array of maps waits for an RCU grace
// period, 10 ms and more, for each service (docs/adr/0020-slots.md). Filling a range costs one
// system call.
type Slots struct {
	blocks      *Array
	free        freeList
	quarantined []quarantinedRange // the longest first
	now         Clock
	adopted     map[Range]uint64 // sums of ranges written by an earlier process
	seed        maphash.Seed
}

type quarantinedRange struct {
	Range
	at time.Time
}

// NewSlots returns an allocator without used ranges; Adopt adds an earlier process's ranges.
func NewSlots(blocks *Array, now Clock) Slots {
	return Slots{blocks: blocks, free: newFreeList(), now: now, adopted: map[Range]uint64{}, seed: maphash.MakeSeed()}
}

// Adopt marks ranges as used, and stores a hash of their content: reading each one later would take
// a system call for each block.
func (s *Slots) Adopt(used []Range) error {
	whole := make([]Range, len(used))
	bySegment := map[uint32][]Range{}
	for i, r := range used {
		whole[i] = r.roundUp()
		bySegment[r.Segment] = append(bySegment[r.Segment], r)
	}
	s.free.adopt(len(s.blocks.Segments()), whole)
	for segment, m := range s.blocks.Segments() {
		ranges := bySegment[uint32(segment)]
		if len(ranges) == 0 {
			continue
		}
		ids := make([]uint32, 0, SlotsPerSegment)
		err := EachBatch(m, All, func(_ []uint32, blocks []bpf.TcSlotBlock) {
			for i := range blocks {
				ids = append(ids, blocks[i].Endpoints[:]...)
			}
		})
		if err != nil {
			return fmt.Errorf("read slots: %w", err)
		}
		for _, r := range ranges {
			if int(r.end()) <= len(ids) {
				s.adopted[r] = s.sumOf(ids[r.Offset:r.end()])
			}
		}
	}
	return nil
}

// sumOf returns a hash of endpoint ids, different in each process.
func (s *Slots) sumOf(ids []uint32) uint64 {
	var h maphash.Hash
	h.SetSeed(s.seed)
	var word [4]byte
	for _, id := range ids {
		binary.NativeEndian.PutUint32(word[:], id)
		h.Write(word[:]) // never fails
	}
	return h.Sum64()
}

// roundUp extends the range to the end of its last block.
func (r Range) roundUp() Range {
	r.Count = (r.Count + slotsPerBlock - 1) / slotsPerBlock * slotsPerBlock
	return r
}

// Write writes endpoint ids into an unused range, and returns it; or it returns have, if that holds
// exactly these ids.
func (s *Slots) Write(endpoints []uint32, have Range) (Range, error) {
	if len(endpoints) == 0 {
		return Range{}, nil
	}
	blocks := make([]bpf.TcSlotBlock, (len(endpoints)+int(slotsPerBlock)-1)/int(slotsPerBlock))
	for i := range blocks {
		copy(blocks[i].Endpoints[:], endpoints[i*int(slotsPerBlock):])
	}
	if int(have.Count) == len(endpoints) && s.hasIDs(have, endpoints, blocks) {
		return have, nil
	}
	r, err := s.get(uint32(len(endpoints)))
	if err != nil {
		return Range{}, err
	}
	if _, err := s.blocks.Segments()[r.Segment].BatchUpdate(r.keys(len(blocks)), blocks, nil); err != nil {
		s.Put(r)
		return Range{}, fmt.Errorf("write slots: %w", err)
	}
	return r, nil
}

// keys returns the keys of a range's blocks in their segment.
func (r Range) keys(blocks int) []uint32 {
	keys := make([]uint32, blocks)
	for i := range keys {
		keys[i] = r.Offset/slotsPerBlock + uint32(i)
	}
	return keys
}

// hasIDs reports whether a range has exactly these ids.
func (s *Slots) hasIDs(r Range, ids []uint32, blocks []bpf.TcSlotBlock) bool {
	if sum, ok := s.adopted[r]; ok { // good until the range may be written
		delete(s.adopted, r)
		return sum == s.sumOf(ids)
	}
	var there bpf.TcSlotBlock
	for i, key := range r.keys(len(blocks)) {
		if err := s.blocks.Segments()[r.Segment].Lookup(key, &there); err != nil || there != blocks[i] {
			return false
		}
	}
	return true
}

// Read returns the endpoint ids in a range.
func (s *Slots) Read(r Range) ([]uint32, error) {
	if r.Count == 0 {
		return nil, nil
	}
	ids := make([]uint32, 0, r.roundUp().Count)
	var block bpf.TcSlotBlock
	for _, key := range r.keys(int(r.roundUp().Count / slotsPerBlock)) {
		if err := s.blocks.Segments()[r.Segment].Lookup(key, &block); err != nil {
			return nil, fmt.Errorf("read slots: %w", err)
		}
		ids = append(ids, block.Endpoints[:]...)
	}
	return ids[:r.Count], nil
}

func (s *Slots) get(count uint32) (Range, error) {
	s.reclaim()
	want := Range{Count: count}.roundUp().Count
	r, ok := s.free.allocate(want)
	if !ok {
		if err := s.grow(); err != nil {
			return Range{}, err
		}
		r, _ = s.free.allocate(want) // a segment holds the longest table
	}
	r.Count = count
	return r, nil
}

// grow adds segments, more at once if there are many, since the kernel takes as long for several as
// for one.
func (s *Slots) grow() error {
	before := len(s.blocks.Segments())
	if before == s.blocks.MaxSegments() {
		return fmt.Errorf("%w; all %d segments of slots are in use: weights with a smaller sum need fewer segments", ErrFull, before)
	}
	err := s.Add(1 + before/4)
	if len(s.blocks.Segments()) > before {
		return nil
	}
	return err
}

// Add adds segments.
func (s *Slots) Add(segments int) error {
	before := len(s.blocks.Segments())
	err := Grow(segments, s.blocks)
	for segment := before; segment < len(s.blocks.Segments()); segment++ {
		s.free.release(Range{uint32(segment), 0, SlotsPerSegment})
	}
	return err
}

// MissingSegments returns the number of missing segments for these services and endpoints, if each
// endpoint takes one slot: most do, some take more.
func (s *Slots) MissingSegments(services, endpoints int) int {
	const perSegment = int(SlotsPerSegment)
	least := max(endpoints, services*int(slotsPerBlock))
	wanted := min((least+perSegment-1)/perSegment, s.blocks.MaxSegments())
	return max(0, wanted-len(s.blocks.Segments()))
}

// Put releases a range that no row refers to any more.
func (s *Slots) Put(r Range) {
	if r.Count > 0 {
		delete(s.adopted, r)
		s.quarantined = append(s.quarantined, quarantinedRange{r.roundUp(), s.now()})
	}
}

// reclaim frees ranges whose quarantine is over.
func (s *Slots) reclaim() {
	for len(s.quarantined) > 0 && s.now().Sub(s.quarantined[0].at) >= Quarantine {
		s.free.release(s.quarantined[0].Range)
		s.quarantined = s.quarantined[1:]
	}
}

// Unused reports whether every place of every segment is free.
func (s *Slots) Unused() bool {
	s.reclaim()
	for segment := range s.blocks.Segments() {
		if f, ok := s.free.starting[place{uint32(segment), 0}]; !ok || f.Count != SlotsPerSegment {
			return false
		}
	}
	return true
}

// SetClock sets the clock, for tests.
func (s *Slots) SetClock(now Clock) { s.now = now }

package alloc

import (
	"fmt"
	"slices"
	"time"

	"loxilb/internal/datapath/bpf"
	"loxilb/internal/datapath/rows"
)

const (
	// SlotsPerSegment is the length of the longest table.
	SlotsPerSegment = uint32(bpf.TcLimitSLOTS_PER_SEGMENT)
	slotsPerBlock   = uint32(bpf.TcLimitSLOTS_PER_BLOCK)
)

// Slots gives out ranges of the slots map, and makes segments when they are needed. A freed range is quarantined
// like a freed id. Ranges begin where a block does, and take it whole.
//
// Why not an inner map for each service: updating an array of maps waits for an RCU grace period, 10 ms and
// more, for each service (docs/adr/0007-slot-ranges.md); a range costs one system call to fill.
type Slots struct {
	blocks      *rows.Array
	free        freeList
	quarantined []quarantinedRange // the longest first
	now         Clock
}

type quarantinedRange struct {
	Range
	at time.Time
}

// NewSlots gives out none that is used already: those of an earlier process are for Adopt.
func NewSlots(blocks *rows.Array, now Clock) Slots {
	return Slots{blocks: blocks, free: newFreeList(), now: now}
}

// Adopt cuts out the ranges in use.
func (s *Slots) Adopt(used []Range) {
	for i := range used {
		used[i] = used[i].whole()
	}
	s.free.adopt(len(s.blocks.Segments()), used)
}

// whole is the range with the rest of its last block.
func (r Range) whole() Range {
	r.Count = (r.Count + slotsPerBlock - 1) / slotsPerBlock * slotsPerBlock
	return r
}

// Write puts endpoint ids into a range that nobody reads yet, and returns it; or it returns have, if that holds just
// these ids.
func (s *Slots) Write(endpoints []uint32, have Range) (Range, error) {
	if len(endpoints) == 0 {
		return Range{}, nil
	}
	blocks := make([]bpf.TcSlotBlock, (len(endpoints)+int(slotsPerBlock)-1)/int(slotsPerBlock))
	for i := range blocks {
		copy(blocks[i].Endpoints[:], endpoints[i*int(slotsPerBlock):])
	}
	if int(have.Count) == len(endpoints) {
		if there, err := s.read(have, len(blocks)); err == nil && slices.Equal(there, blocks) {
			return have, nil
		}
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

// keys are those of a range's blocks in their segment.
func (r Range) keys(blocks int) []uint32 {
	keys := make([]uint32, blocks)
	for i := range keys {
		keys[i] = r.Offset/slotsPerBlock + uint32(i)
	}
	return keys
}

func (s *Slots) read(r Range, blocks int) ([]bpf.TcSlotBlock, error) {
	there := make([]bpf.TcSlotBlock, blocks)
	for i, key := range r.keys(blocks) { // a batch of an array is read from its first row on
		if err := s.blocks.Segments()[r.Segment].Lookup(key, &there[i]); err != nil {
			return nil, err
		}
	}
	return there, nil
}

func (s *Slots) get(count uint32) (Range, error) {
	s.reclaim()
	want := Range{Count: count}.whole().Count
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

// grow adds segments: the more there are, the more at once, since the kernel takes as long for some as for one.
func (s *Slots) grow() error {
	before := len(s.blocks.Segments())
	if before == s.blocks.MaxSegments() {
		return fmt.Errorf("%w; all %d segments of slots are in use: weights with a smaller sum need less of them", ErrFull, before)
	}
	err := rows.Grow(1+before/4, s.blocks)
	after := len(s.blocks.Segments())
	for segment := before; segment < after; segment++ {
		s.free.release(Range{uint32(segment), 0, SlotsPerSegment})
	}
	if after > before {
		return nil
	}
	return err
}

// Put takes a range back that no row leads to any more.
func (s *Slots) Put(r Range) {
	if r.Count > 0 {
		s.quarantined = append(s.quarantined, quarantinedRange{r.whole(), s.now()})
	}
}

// reclaim makes ranges free again whose quarantine is over.
func (s *Slots) reclaim() {
	for len(s.quarantined) > 0 && s.now().Sub(s.quarantined[0].at) >= Quarantine {
		s.free.release(s.quarantined[0].Range)
		s.quarantined = s.quarantined[1:]
	}
}

// Unused tells whether every place of every segment is free.
func (s *Slots) Unused() bool {
	s.reclaim()
	for segment := range s.blocks.Segments() {
		if f, ok := s.free.starting[place{uint32(segment), 0}]; !ok || f.Count != SlotsPerSegment {
			return false
		}
	}
	return true
}

// SetClock is for tests.
func (s *Slots) SetClock(now Clock) { s.now = now }

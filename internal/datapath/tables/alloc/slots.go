package alloc

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
)

const (
	// SlotsPerSegment is the length of the longest table.
	SlotsPerSegment = 65536
	slotSegments    = 4096
)

// Slots gives out ranges of the slots map, and makes segments when they are needed. A freed range is quarantined
// like a freed id.
//
// Why not an inner map for each service: updating an array of maps waits for an RCU grace period, 10 ms and
// more, for each service (docs/adr/0007-slot-ranges.md); a range costs one system call to fill.
type Slots struct {
	outer       *ebpf.Map
	inner       *ebpf.MapSpec
	maps        []*ebpf.Map // by segment
	free        freeList
	quarantined []quarantinedRange // the longest first
	now         Clock
}

type quarantinedRange struct {
	Range
	at time.Time
}

// NewSlots has no segment yet.
func NewSlots(outer *ebpf.Map, inner *ebpf.MapSpec, now Clock) Slots {
	return Slots{outer: outer, inner: inner, free: newFreeList(), now: now}
}

// Adopt opens the segments that an earlier process made and cuts out the ranges in use.
func (s *Slots) Adopt(used []Range) error {
	for segment := uint32(0); segment < slotSegments; segment++ {
		var id ebpf.MapID
		err := s.outer.Lookup(segment, &id)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			break
		}
		if err != nil {
			return fmt.Errorf("open slot segment %d: %w", segment, err)
		}
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return fmt.Errorf("open slot segment %d: %w", segment, err)
		}
		s.maps = append(s.maps, m)
	}
	s.free.adopt(len(s.maps), used)
	return nil
}

// Write puts endpoint ids into a range that nobody reads yet.
func (s *Slots) Write(endpoints []uint32) (Range, error) {
	if len(endpoints) == 0 {
		return Range{}, nil
	}
	r, err := s.get(uint32(len(endpoints)))
	if err != nil {
		return Range{}, err
	}
	keys := make([]uint32, r.Count)
	for i := range keys {
		keys[i] = r.Offset + uint32(i)
	}
	if _, err := s.maps[r.Segment].BatchUpdate(keys, endpoints, nil); err != nil {
		s.Put(r)
		return Range{}, fmt.Errorf("write slots: %w", err)
	}
	return r, nil
}

func (s *Slots) get(count uint32) (Range, error) {
	s.reclaim()
	if r, ok := s.free.allocate(count); ok {
		return r, nil
	}
	if err := s.grow(); err != nil {
		return Range{}, err
	}
	r, _ := s.free.allocate(count) // a segment holds the longest table
	return r, nil
}

func (s *Slots) grow() error {
	segment := uint32(len(s.maps))
	if segment == slotSegments {
		return fmt.Errorf("%w; all %d segments of slots are in use: weights with a smaller sum need less of them", ErrFull, slotSegments)
	}
	m, err := ebpf.NewMap(s.inner)
	if err != nil {
		return fmt.Errorf("make slot segment %d: %w", segment, err)
	}
	if err := s.outer.Put(segment, m); err != nil {
		m.Close()
		return fmt.Errorf("add slot segment %d: %w", segment, err)
	}
	s.maps = append(s.maps, m)
	s.free.release(Range{segment, 0, SlotsPerSegment})
	return nil
}

// Put takes a range back that no row leads to any more.
func (s *Slots) Put(r Range) {
	if r.Count > 0 {
		s.quarantined = append(s.quarantined, quarantinedRange{r, s.now()})
	}
}

// reclaim makes ranges free again whose quarantine is over.
func (s *Slots) reclaim() {
	for len(s.quarantined) > 0 && s.now().Sub(s.quarantined[0].at) >= Quarantine {
		s.free.release(s.quarantined[0].Range)
		s.quarantined = s.quarantined[1:]
	}
}

// Close gives up the segments.
func (s *Slots) Close() {
	for _, m := range s.maps {
		m.Close()
	}
}

// Segments are the maps of the slots.
func (s *Slots) Segments() []*ebpf.Map { return s.maps }

// Unused tells whether every place of every segment is free.
func (s *Slots) Unused() bool {
	s.reclaim()
	for segment := range s.maps {
		if f, ok := s.free.starting[place{uint32(segment), 0}]; !ok || f.Count != SlotsPerSegment {
			return false
		}
	}
	return true
}

// SetClock is for tests.
func (s *Slots) SetClock(now Clock) { s.now = now }

package datapath

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
)

const (
	slotsPerSegment = 65536
	slotSegments    = 4096
)

// slotSpace gives out stretches of the slots map, and makes segments when they are needed. A freed stretch rests
// like a freed id.
//
// Why not an inner map for each service: updating an array of maps waits for an RCU grace period, 10 ms and
// more, for each service (docs/adr/0007-slot-ranges.md); a stretch costs one system call to fill.
type slotSpace struct {
	outer   *ebpf.Map
	inner   *ebpf.MapSpec
	maps    []*ebpf.Map // by segment
	free    stretches
	resting []restingRange // the longest at rest first
	now     func() time.Time
}

type restingRange struct {
	slotRange
	at time.Time
}

func newSlotSpace(outer *ebpf.Map, inner *ebpf.MapSpec, now func() time.Time) slotSpace {
	return slotSpace{outer: outer, inner: inner, free: newStretches(), now: now}
}

// adopt opens the segments that an earlier process made and cuts out the stretches in use.
func (s *slotSpace) adopt(used []slotRange) error {
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

// write puts endpoint ids into a stretch that nobody reads yet.
func (s *slotSpace) write(endpoints []uint32) (slotRange, error) {
	if len(endpoints) == 0 {
		return slotRange{}, nil
	}
	r, err := s.get(uint32(len(endpoints)))
	if err != nil {
		return slotRange{}, err
	}
	keys := make([]uint32, r.count)
	for i := range keys {
		keys[i] = r.offset + uint32(i)
	}
	if _, err := s.maps[r.segment].BatchUpdate(keys, endpoints, nil); err != nil {
		s.put(r)
		return slotRange{}, fmt.Errorf("write slots: %w", err)
	}
	return r, nil
}

func (s *slotSpace) get(count uint32) (slotRange, error) {
	s.wake()
	if r, ok := s.free.take(count); ok {
		return r, nil
	}
	if err := s.grow(); err != nil {
		return slotRange{}, err
	}
	r, _ := s.free.take(count) // a segment holds the longest table
	return r, nil
}

func (s *slotSpace) grow() error {
	segment := uint32(len(s.maps))
	if segment == slotSegments {
		return fmt.Errorf("slots: all %d segments are full; weights with a smaller sum need less of them", slotSegments)
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
	s.free.give(slotRange{segment, 0, slotsPerSegment})
	return nil
}

func (s *slotSpace) put(r slotRange) {
	if r.count > 0 {
		s.resting = append(s.resting, restingRange{r, s.now()})
	}
}

// wake makes rested stretches free again.
func (s *slotSpace) wake() {
	for len(s.resting) > 0 && s.now().Sub(s.resting[0].at) >= restTime {
		s.free.give(s.resting[0].slotRange)
		s.resting = s.resting[1:]
	}
}

func (s *slotSpace) close() {
	for _, m := range s.maps {
		m.Close()
	}
}

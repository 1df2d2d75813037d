package datapath

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
)

const (
	slotsPerSegment = 65536
	slotSegments    = 1024
)

// slotRange is a stretch of one segment of the slots map.
type slotRange struct {
	segment, offset, count uint32
}

// slotSpace gives out stretches of the slots map, first fit, and makes segments when they are needed. A freed
// stretch rests like a freed id.
//
// Why not an inner map for each service: updating an array of maps waits for an RCU grace period, 10 ms and
// more, for each service (docs/adr/0007-slot-ranges.md); a stretch costs one system call to fill.
type slotSpace struct {
	outer   *ebpf.Map
	inner   *ebpf.MapSpec
	maps    []*ebpf.Map // by segment
	free    []slotRange // by segment and offset
	resting []restingRange
	now     func() time.Time
}

type restingRange struct {
	slotRange
	at time.Time
}

func newSlotSpace(outer *ebpf.Map, inner *ebpf.MapSpec) slotSpace {
	return slotSpace{outer: outer, inner: inner, now: time.Now}
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
		s.free = append(s.free, slotRange{segment, 0, slotsPerSegment})
	}
	for _, r := range used {
		s.cut(r)
	}
	return nil
}

// cut removes a stretch from the free ones.
func (s *slotSpace) cut(r slotRange) {
	for i, f := range s.free {
		if f.segment != r.segment || r.offset < f.offset || r.offset+r.count > f.offset+f.count {
			continue
		}
		rest := []slotRange{
			{f.segment, f.offset, r.offset - f.offset},
			{f.segment, r.offset + r.count, f.offset + f.count - r.offset - r.count},
		}
		keep := rest[:0]
		for _, x := range rest {
			if x.count > 0 {
				keep = append(keep, x)
			}
		}
		s.free = append(s.free[:i], append(append([]slotRange{}, keep...), s.free[i+1:]...)...)
		return
	}
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
	for i, f := range s.free {
		if f.count < count {
			continue
		}
		r := slotRange{f.segment, f.offset, count}
		if f.count == count {
			s.free = append(s.free[:i], s.free[i+1:]...)
		} else {
			s.free[i] = slotRange{f.segment, f.offset + count, f.count - count}
		}
		return r, nil
	}
	if err := s.grow(); err != nil {
		return slotRange{}, err
	}
	return s.get(count)
}

func (s *slotSpace) grow() error {
	segment := uint32(len(s.maps))
	if segment == slotSegments {
		return fmt.Errorf("slots: all %d segments are full", slotSegments)
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
	s.free = append(s.free, slotRange{segment, 0, slotsPerSegment})
	return nil
}

func (s *slotSpace) put(r slotRange) {
	if r.count > 0 {
		s.resting = append(s.resting, restingRange{r, s.now()})
	}
}

// wake makes rested stretches free again, joined with their free neighbours.
func (s *slotSpace) wake() {
	for len(s.resting) > 0 && s.now().Sub(s.resting[0].at) >= restTime {
		s.release(s.resting[0].slotRange)
		s.resting = s.resting[1:]
	}
}

func (s *slotSpace) release(r slotRange) {
	i := 0
	for i < len(s.free) && (s.free[i].segment < r.segment || (s.free[i].segment == r.segment && s.free[i].offset < r.offset)) {
		i++
	}
	s.free = append(s.free[:i], append([]slotRange{r}, s.free[i:]...)...)
	s.join(i)
	if i > 0 {
		s.join(i - 1)
	}
}

// join merges the free stretch i with the next one if they touch.
func (s *slotSpace) join(i int) {
	if i+1 >= len(s.free) {
		return
	}
	a, b := s.free[i], s.free[i+1]
	if a.segment == b.segment && a.offset+a.count == b.offset {
		s.free[i].count += b.count
		s.free = append(s.free[:i+1], s.free[i+2:]...)
	}
}

func (s *slotSpace) close() {
	for _, m := range s.maps {
		m.Close()
	}
}

package datapath

import (
	"cmp"
	"math/bits"
	"slices"
)

// slotRange is a stretch of one segment of the slots map.
type slotRange struct {
	segment, offset, count uint32
}

func (r slotRange) end() uint32 { return r.offset + r.count }

// stretches are what is free of the segments. Taking one and giving it back cost the same however many there are,
// but for a short search among those of about the right size: no list is walked, for there may be 65,536 services.
type stretches struct {
	starting map[slotPlace]*stretch
	ending   map[slotPlace]*stretch // by the place behind the last one
	bins     [slotBins][]*stretch   // bin k: counts of 2^k up to 2^(k+1)-1
}

type slotPlace struct{ segment, offset uint32 }

type stretch struct {
	slotRange
	index int // in its bin
}

// slotBins are enough for counts up to slotsPerSegment.
const slotBins = 17

// triedInBin bounds the search among stretches that may be a little too small.
const triedInBin = 8

func newStretches() stretches {
	return stretches{starting: map[slotPlace]*stretch{}, ending: map[slotPlace]*stretch{}}
}

// take cuts count places out of a free stretch. False: none is large enough.
func (s *stretches) take(count uint32) (slotRange, bool) {
	f := s.find(count)
	if f == nil {
		return slotRange{}, false
	}
	s.remove(f)
	if f.count > count {
		s.insert(slotRange{f.segment, f.offset + count, f.count - count})
	}
	return slotRange{f.segment, f.offset, count}, true
}

// find looks among those of about the size first, so that the large ones stay whole.
func (s *stretches) find(count uint32) *stretch {
	near := bits.Len32(count) - 1
	if f := s.fitting(near, count, triedInBin); f != nil {
		return f
	}
	for k := near + 1; k < len(s.bins); k++ {
		if n := len(s.bins[k]); n > 0 {
			return s.bins[k][n-1]
		}
	}
	return s.fitting(near, count, len(s.bins[near]))
}

func (s *stretches) fitting(bin int, count uint32, tries int) *stretch {
	list := s.bins[bin]
	for i := len(list) - 1; i >= max(0, len(list)-tries); i-- {
		if list[i].count >= count {
			return list[i]
		}
	}
	return nil
}

// give makes a stretch free, joined with its free neighbours.
func (s *stretches) give(r slotRange) {
	if before, ok := s.ending[slotPlace{r.segment, r.offset}]; ok {
		s.remove(before)
		r.offset, r.count = before.offset, r.count+before.count
	}
	if after, ok := s.starting[slotPlace{r.segment, r.end()}]; ok {
		s.remove(after)
		r.count += after.count
	}
	s.insert(r)
}

func (s *stretches) insert(r slotRange) {
	bin := bits.Len32(r.count) - 1
	f := &stretch{slotRange: r, index: len(s.bins[bin])}
	s.bins[bin] = append(s.bins[bin], f)
	s.starting[slotPlace{r.segment, r.offset}] = f
	s.ending[slotPlace{r.segment, r.end()}] = f
}

func (s *stretches) remove(f *stretch) {
	bin := &s.bins[bits.Len32(f.count)-1]
	last := len(*bin) - 1
	moved := (*bin)[last]
	moved.index = f.index
	(*bin)[f.index] = moved
	(*bin)[last] = nil
	*bin = (*bin)[:last]
	delete(s.starting, slotPlace{f.segment, f.offset})
	delete(s.ending, slotPlace{f.segment, f.end()})
}

// adopt makes free what the segments have besides the stretches in use.
func (s *stretches) adopt(segments int, used []slotRange) {
	slices.SortFunc(used, func(a, b slotRange) int {
		return cmp.Or(cmp.Compare(a.segment, b.segment), cmp.Compare(a.offset, b.offset))
	})
	for segment := range uint32(segments) {
		var free uint32 // from here on, as far as known
		for len(used) > 0 && used[0].segment == segment {
			if used[0].offset > free {
				s.insert(slotRange{segment, free, used[0].offset - free})
			}
			free = max(free, used[0].end())
			used = used[1:]
		}
		if free < slotsPerSegment {
			s.insert(slotRange{segment, free, slotsPerSegment - free})
		}
	}
}

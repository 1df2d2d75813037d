package rows

import (
	"cmp"
	"math/bits"
	"slices"
)

// Range is a part of one segment of the slots map.
type Range struct {
	Segment, Offset, Count uint32
}

func (r Range) end() uint32 { return r.Offset + r.Count }

// freeList has the free ranges of the segments. Allocating and releasing takes constant time,
// except for a short search among ranges of similar size: walking a list would be slow with 65,536
// services.
type freeList struct {
	starting map[place]*freeRange
	ending   map[place]*freeRange   // by the place after the last one
	bins     [slotBins][]*freeRange // bin k: counts of 2^k up to 2^(k+1)-1
}

type place struct{ segment, offset uint32 }

type freeRange struct {
	Range
	index int // in its bin
}

// slotBins are enough for counts up to SlotsPerSegment.
const slotBins = 17

// triedInBin bounds the search among ranges that may be a little too small.
const triedInBin = 8

func newFreeList() freeList {
	return freeList{starting: map[place]*freeRange{}, ending: map[place]*freeRange{}}
}

// allocate takes count places from a free range. It returns false if no range is large enough.
func (l *freeList) allocate(count uint32) (Range, bool) {
	f := l.find(count)
	if f == nil {
		return Range{}, false
	}
	l.remove(f)
	if f.Count > count {
		l.insert(Range{f.Segment, f.Offset + count, f.Count - count})
	}
	return Range{f.Segment, f.Offset, count}, true
}

// find searches ranges of similar size first, so large ones stay whole.
func (l *freeList) find(count uint32) *freeRange {
	near := bits.Len32(count) - 1
	if f := l.fitting(near, count, triedInBin); f != nil {
		return f
	}
	for k := near + 1; k < len(l.bins); k++ {
		if n := len(l.bins[k]); n > 0 {
			return l.bins[k][n-1]
		}
	}
	return l.fitting(near, count, len(l.bins[near]))
}

func (l *freeList) fitting(bin int, count uint32, tries int) *freeRange {
	list := l.bins[bin]
	for i := len(list) - 1; i >= max(0, len(list)-tries); i-- {
		if list[i].Count >= count {
			return list[i]
		}
	}
	return nil
}

// release makes a range free, joined with its free neighbours.
func (l *freeList) release(r Range) {
	if before, ok := l.ending[place{r.Segment, r.Offset}]; ok {
		l.remove(before)
		r.Offset, r.Count = before.Offset, r.Count+before.Count
	}
	if after, ok := l.starting[place{r.Segment, r.end()}]; ok {
		l.remove(after)
		r.Count += after.Count
	}
	l.insert(r)
}

func (l *freeList) insert(r Range) {
	bin := bits.Len32(r.Count) - 1
	f := &freeRange{Range: r, index: len(l.bins[bin])}
	l.bins[bin] = append(l.bins[bin], f)
	l.starting[place{r.Segment, r.Offset}] = f
	l.ending[place{r.Segment, r.end()}] = f
}

func (l *freeList) remove(f *freeRange) {
	bin := &l.bins[bits.Len32(f.Count)-1]
	last := len(*bin) - 1
	moved := (*bin)[last]
	moved.index = f.index
	(*bin)[f.index] = moved
	(*bin)[last] = nil
	*bin = (*bin)[:last]
	delete(l.starting, place{f.Segment, f.Offset})
	delete(l.ending, place{f.Segment, f.end()})
}

// adopt frees all of the segments except for the ranges in use.
func (l *freeList) adopt(segments int, used []Range) {
	slices.SortFunc(used, func(a, b Range) int {
		return cmp.Or(cmp.Compare(a.Segment, b.Segment), cmp.Compare(a.Offset, b.Offset))
	})
	for segment := range uint32(segments) {
		var free uint32 // start of the free range
		for len(used) > 0 && used[0].Segment == segment {
			if used[0].Offset > free {
				l.insert(Range{segment, free, used[0].Offset - free})
			}
			free = max(free, used[0].end())
			used = used[1:]
		}
		if free < SlotsPerSegment {
			l.insert(Range{segment, free, SlotsPerSegment - free})
		}
	}
}

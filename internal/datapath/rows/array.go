package rows

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
)

// Array is an array map in segments of one length, which are made when they are needed and never given back: an array
// of maps. Methods are not safe for concurrent use, but for those that read while nobody grows it.
type Array struct {
	name     string
	outer    *ebpf.Map
	inner    *ebpf.MapSpec
	segments []*ebpf.Map
}

// NewArray is the array in an array of maps, so far without segments.
func NewArray(name string, outer *ebpf.Map, inner *ebpf.MapSpec) *Array {
	return &Array{name: name, outer: outer, inner: inner}
}

// PerSegment is the number of rows of a segment.
func (a *Array) PerSegment() uint32 { return a.inner.MaxEntries }

// Segments are the maps of the rows.
func (a *Array) Segments() []*ebpf.Map { return a.segments }

// Table is the only segment of an array of one: a hash, say, that is made when it is needed. nil: it is not there yet.
func (a *Array) Table() *ebpf.Map {
	if len(a.segments) == 0 {
		return nil
	}
	return a.segments[0]
}

// Make makes the only segment of an array of one, if it is not there yet.
func (a *Array) Make() error {
	if len(a.segments) > 0 {
		return nil
	}
	return Grow(1, a)
}

// Len is how many rows there are now.
func (a *Array) Len() int { return len(a.segments) * int(a.PerSegment()) }

// MaxSegments is how many segments there can be.
func (a *Array) MaxSegments() int { return int(a.outer.MaxEntries()) }

// Adopt opens the segments that an earlier process made.
func (a *Array) Adopt() error {
	for segment := range a.outer.MaxEntries() {
		var id ebpf.MapID
		err := a.outer.Lookup(segment, &id)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("open segment %d of %s: %w", segment, a.name, err)
		}
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return fmt.Errorf("open segment %d of %s: %w", segment, a.name, err)
		}
		a.segments = append(a.segments, m)
	}
	return nil
}

// growAtOnce bounds the threads that wait for the kernel.
const growAtOnce = 16

// Grow gives each of some arrays n segments more, as far as they can have so many. The kernel waits for a grace period,
// 10 ms and more, with each segment; those that are added side by side share it.
func Grow(n int, arrays ...*Array) error {
	var (
		growing sync.WaitGroup
		slots   = make(chan struct{}, growAtOnce)
		errs    = make([][]error, len(arrays))
		made    = make([][]*ebpf.Map, len(arrays))
	)
	for i, a := range arrays {
		first := len(a.segments)
		count := min(n, a.MaxSegments()-first)
		errs[i], made[i] = make([]error, count), make([]*ebpf.Map, count)
		for j := range count {
			slots <- struct{}{}
			growing.Go(func() {
				made[i][j], errs[i][j] = a.add(uint32(first + j))
				<-slots
			})
		}
	}
	growing.Wait()
	var failed error
	for i, a := range arrays {
		whole := true
		for j, m := range made[i] {
			if whole = whole && errs[i][j] == nil; whole {
				a.segments = append(a.segments, m)
			} else if m != nil {
				_ = m.Close() // it is made anew with the next try
			}
		}
		failed = errors.Join(failed, errors.Join(errs[i]...))
	}
	return failed
}

func (a *Array) add(segment uint32) (*ebpf.Map, error) {
	m, err := ebpf.NewMap(a.inner)
	if err != nil {
		return nil, fmt.Errorf("make segment %d of %s: %w", segment, a.name, err)
	}
	if err := a.outer.Put(segment, m); err != nil {
		_ = m.Close()
		return nil, fmt.Errorf("add segment %d of %s: %w", segment, a.name, err)
	}
	return m, nil
}

func (a *Array) row(id uint32) (*ebpf.Map, uint32, error) {
	segment := id / a.PerSegment()
	if int(segment) >= len(a.segments) {
		return nil, 0, fmt.Errorf("row %d of %s: %w", id, a.name, ebpf.ErrKeyNotExist)
	}
	return a.segments[segment], id % a.PerSegment(), nil
}

// Put writes a row.
func (a *Array) Put(id uint32, row any) error {
	m, key, err := a.row(id)
	if err != nil {
		return err
	}
	return m.Put(key, row)
}

// Lookup reads a row.
func (a *Array) Lookup(id uint32, row any) error {
	m, key, err := a.row(id)
	if err != nil {
		return err
	}
	return m.Lookup(key, row)
}

// PutBatch writes rows by one system call for each run of ids in one segment.
func PutBatch[V any](a *Array, ids []uint32, values []V) error {
	keys := make([]uint32, len(ids))
	for len(ids) > 0 {
		m, _, err := a.row(ids[0])
		if err != nil {
			return err
		}
		n := 0
		for n < len(ids) && ids[n]/a.PerSegment() == ids[0]/a.PerSegment() {
			keys[n] = ids[n] % a.PerSegment()
			n++
		}
		if _, err := m.BatchUpdate(keys[:n], values[:n], nil); err != nil {
			return err
		}
		ids, values = ids[n:], values[n:]
	}
	return nil
}

// EachOf is EachBatch for the first limit rows of an array.
func EachOf[V any](a *Array, limit int, f func(ids []uint32, values []V)) error {
	per := int(a.PerSegment())
	for i, m := range a.segments {
		first := i * per
		if first >= limit {
			return nil
		}
		err := EachBatch(m, min(per, limit-first), func(ids []uint32, values []V) {
			for j := range ids {
				ids[j] += uint32(first)
			}
			f(ids, values)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Close gives up the segments.
func (a *Array) Close() {
	for _, m := range a.segments {
		_ = m.Close()
	}
	a.segments = nil
}

package rows

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Array is an array map in segments of one length, made on demand and never removed: an array of
// maps. Methods are not safe for concurrent use; reading concurrently is, unless the array grows.
type Array struct {
	name     string
	outer    *ebpf.Map
	inner    *ebpf.MapSpec
	released int         // segments that exist but are not open
	segments []*ebpf.Map // the segments after them
	noMemory int         // the first segment that cannot be made, if not 0; for tests
}

// NewArray returns the array in an array of maps, so far without segments.
func NewArray(name string, outer *ebpf.Map, inner *ebpf.MapSpec) *Array {
	inner = inner.Copy()
	if inner.Value == nil {
		// The kernel refuses the type of a key without that of a value. The library would try it
		// for each segment.
		inner.Key = nil
	}
	return &Array{name: name, outer: outer, inner: inner}
}

// PerSegment is the number of rows of a segment.
func (a *Array) PerSegment() uint32 { return a.inner.MaxEntries }

// Segments returns the maps of the rows.
func (a *Array) Segments() []*ebpf.Map { return a.segments }

// Table returns the only segment of an array, such as a hash that is made on demand, or nil before
// it is made.
func (a *Array) Table() *ebpf.Map {
	if len(a.segments) == 0 {
		return nil
	}
	return a.segments[0]
}

// Make makes the only segment of an array, if it does not exist yet.
func (a *Array) Make() error {
	if len(a.segments) > 0 {
		return nil
	}
	return Grow(1, a)
}

// Len returns the current number of rows.
func (a *Array) Len() int { return len(a.segments) * int(a.PerSegment()) }

// MaxSegments returns the maximum number of segments.
func (a *Array) MaxSegments() int { return int(a.outer.MaxEntries()) }

// Adopt opens the segments that an earlier process made.
func (a *Array) Adopt() error {
	for segment := range a.MaxSegments() {
		m, err := a.Open(segment)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		a.segments = append(a.segments, m)
	}
	return nil
}

// runsAtOnce is the number of concurrent calls that add an array's new segments.
const runsAtOnce = 16

// Grow adds n segments to each of some arrays, as far as their maximum allows; none if one cannot
// be made: near a limit of memory, others need what there is. After adding a segment, the kernel
// waits for a grace period of 10 ms or more. Since Linux 6.8 it does so once per call; before, once
// per segment, so several concurrent calls share the periods: 1,000 segments take 30 ms instead of
// 1 s.
func Grow(n int, arrays ...*Array) error {
	runs := make([][]*run, len(arrays))
	for i, a := range arrays {
		runs[i] = a.runs(n)
	}
	all := slices.Concat(runs...)
	var failed atomic.Bool
	atOnce(all, func(r *run) { r.makeSegments(&failed) })
	if failed.Load() {
		return giveUp(all)
	}
	atOnce(all, (*run).add)
	var errs error
	for i, a := range arrays {
		errs = errors.Join(errs, a.appendRuns(runs[i]))
	}
	return errs
}

// run is consecutive new segments of an array.
type run struct {
	array *Array
	first uint32
	made  []*ebpf.Map // wanted, then made, then added
	err   error
}

// runs splits n more segments, or as many as are possible, among calls.
func (a *Array) runs(n int) (runs []*run) {
	first := a.Count()
	end := min(first+n, a.MaxSegments())
	length := (end - first + runsAtOnce - 1) / runsAtOnce
	for ; first < end; first += length {
		runs = append(runs, &run{array: a, first: uint32(first), made: make([]*ebpf.Map, min(length, end-first))})
	}
	return runs
}

// atOnce calls do for all runs concurrently, and waits.
func atOnce(runs []*run, do func(*run)) {
	var all sync.WaitGroup
	for _, r := range runs {
		all.Go(func() { do(r) })
	}
	all.Wait()
}

// giveUp closes segments that were not added, and returns the first error.
func giveUp(runs []*run) (err error) {
	for _, r := range runs {
		closeAll(r.made)
		if err == nil {
			err = r.err
		}
	}
	return err
}

// makeSegments makes the segments of a run, until one of any run fails.
func (r *run) makeSegments(failed *atomic.Bool) {
	for i := range r.made {
		m, err := r.array.newSegment(int(r.first) + i)
		if err != nil {
			r.err = fmt.Errorf("make segment %d of %s: %w", r.first+uint32(i), r.array.name, err)
			failed.Store(true)
		}
		if failed.Load() {
			_ = Close(m)
			r.made = r.made[:i]
			return
		}
		r.made[i] = m
	}
}

// newSegment makes a segment that is in no outer map yet.
func (a *Array) newSegment(segment int) (*ebpf.Map, error) {
	if a.noMemory > 0 && segment >= a.noMemory {
		return nil, unix.ENOMEM
	}
	return ebpf.NewMap(a.inner)
}

// add adds the segments to the outer map.
func (r *run) add() {
	keys, fds := make([]uint32, len(r.made)), make([]uint32, len(r.made))
	for i, m := range r.made {
		keys[i], fds[i] = r.first+uint32(i), uint32(m.FD())
	}
	added, err := r.array.outer.BatchUpdate(keys, fds, nil)
	if err != nil {
		r.err = fmt.Errorf("add segment %d of %s: %w", r.first+uint32(added), r.array.name, err)
	}
	closeAll(r.made[added:])
	r.made = r.made[:added]
}

// appendRuns appends the added segments up to the first gap. Later ones are made again by the next
// attempt.
func (a *Array) appendRuns(runs []*run) (failed error) {
	for _, r := range runs {
		if failed == nil {
			a.segments = append(a.segments, r.made...)
		} else {
			closeAll(r.made)
		}
		failed = errors.Join(failed, r.err)
	}
	return failed
}

func closeAll(maps []*ebpf.Map) {
	for _, m := range maps {
		_ = Close(m)
	}
}

// Close closes a map reliably. The library also closes unreferenced maps by a cleanup of the
// collector, and stops that by runtime.Cleanup.Stop, which only works while the map is reachable:
// otherwise the descriptor is closed twice, the second time perhaps when it is another file's.
func Close(m *ebpf.Map) error {
	err := m.Close()
	runtime.KeepAlive(m)
	return err
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

// EachOf is EachBatch for the first limit rows of an Array.
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

// Close releases the segments.
func (a *Array) Close() {
	closeAll(a.segments)
	a.segments = nil
}

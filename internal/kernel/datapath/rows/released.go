package rows

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// Released arrays have more segments than a process may have files open: each is opened when it is
// read. Methods with ids of rows do not work for them.

// releaseEvery bounds how many files are open while segments are added.
const releaseEvery = 1024

// Count returns the number of segments, open or not.
func (a *Array) Count() int { return a.released + len(a.segments) }

// GrowReleased adds segments up to this number, where possible, and closes them.
func (a *Array) GrowReleased(count int) error {
	for more := count - a.Count(); more > 0; more = count - a.Count() {
		before := a.Count()
		err := Grow(min(more, releaseEvery), a)
		a.release()
		if err != nil || a.Count() == before {
			return err
		}
	}
	return nil
}

// AdoptReleased counts the segments that an earlier process made, up to the first missing one: a
// process that was killed while it added segments in parallel has left some after a gap. They are
// made again on demand.
func (a *Array) AdoptReleased() error {
	for a.released = 0; a.released < a.MaxSegments(); a.released++ {
		var id ebpf.MapID
		err := a.outer.Lookup(uint32(a.released), &id)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("count segments of %s: %w", a.name, err)
		}
	}
	return nil
}

// Open opens a segment. The caller closes it.
func (a *Array) Open(segment int) (*ebpf.Map, error) {
	var id ebpf.MapID
	if err := a.outer.Lookup(uint32(segment), &id); err != nil {
		return nil, fmt.Errorf("open segment %d of %s: %w", segment, a.name, err)
	}
	m, err := ebpf.NewMapFromID(id)
	if err != nil {
		return nil, fmt.Errorf("open segment %d of %s: %w", segment, a.name, err)
	}
	return m, nil
}

func (a *Array) release() {
	closeAll(a.segments)
	a.released += len(a.segments)
	a.segments = nil
}

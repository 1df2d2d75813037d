package connections

import (
	"context"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/tables"
	"loxilb/internal/kernel/datapath/testrun"
)

const (
	// maxFound bounds the connections of an endpoint that a walk returns, and maxFoundTotal those
	// of all endpoints, which have equal shares: 5 and 11 MB. The rest is left for later walks.
	maxFound      = 65536
	maxFoundTotal = 2 * maxFound
	minFound      = 64 // of an endpoint
	// walkSlice is the number of buckets to walk through before yielding the CPU:
	// WALK_SLICE_BUCKETS of bpf/sweep/walk.h.
	walkSlice = 1024
)

// walk is one pass through the connection table, for all endpoints whose connections end now.
type walk struct {
	*Table
	tracked    uint64                // connections of these endpoints in the table
	met        uint64                // connections that the walk has passed, returned or not
	found      map[uint32][]foundEnd // by endpoint
	foundTotal int
	share      int    // maximum length of a list in found
	enough     int    // the walk stops when foundTotal reaches it
	slice      uint32 // buckets since the last pause
}

// walk finds the connections of these endpoints: first in the groups of the location map and then,
// unless all were found, everywhere. It returns connections of TCP and SCTP by endpoint, and ends
// others at once. It stops when it has found as many as are returned at once.
func (t *Table) walk(ctx context.Context, of []tables.DueEndpoint) (map[uint32][]foundEnd, error) {
	var ending [tables.MaxEndpoints / 64]uint64
	ids := make([]uint32, len(of))
	w := walk{Table: t, share: t.foundShare(len(of))}
	sockets, err := t.sockets.Flows()
	if err != nil {
		return nil, err
	}
	for i, e := range of {
		ids[i] = e.ID
		ending[e.ID/64] |= 1 << (e.ID % 64)
		own := e.Tracked - min(e.Tracked, sockets[e.ID])
		w.tracked += own
		w.enough += int(min(own, uint64(w.share)))
	}
	if err := t.programs.endingEndpoints.Set(ending); err != nil {
		return nil, fmt.Errorf("select endpoints with connections to end: %w", err)
	}
	groups, err := t.shared.Locations.Groups(ids)
	if err != nil {
		return nil, err
	}
	if err := w.groups(ctx, groups); err != nil || w.done() {
		return w.found, err
	}
	return w.found, w.walkAll(ctx)
}

// foundShare returns how many connections of an endpoint a walk for n endpoints returns.
func (t *Table) foundShare(n int) int {
	n = max(n, len(t.ends), 1)
	return min(maxFound, max(t.findLimit/n, minFound))
}

// done reports whether all connections are met, or as many are found as a walk returns.
func (w *walk) done() bool { return w.met >= w.tracked || w.foundTotal >= w.enough }

// begin resets the results of the previous walk.
func (w *walk) begin() error {
	w.met, w.foundTotal, w.found = 0, 0, map[uint32][]foundEnd{}
	if err := w.programs.walkMet.Set(uint64(0)); err != nil {
		return fmt.Errorf("begin to walk through connections: %w", err)
	}
	return nil
}

// groups walks through these groups, in order, and through adjacent groups at once.
func (w *walk) groups(ctx context.Context, list []uint32) error {
	if err := w.begin(); err != nil {
		return err
	}
	const perGroup = uint32(bpf.TcTableLayoutBUCKETS_PER_GROUP)
	for len(list) > 0 && !w.done() {
		n := 1
		for n < len(list) && list[n] == list[0]+uint32(n) {
			n++
		}
		if err := w.buckets(ctx, list[0]*perGroup, (list[0]+uint32(n))*perGroup); err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}

// walkAll walks through the whole table, and again if growth has moved entries back meanwhile.
func (w *walk) walkAll(ctx context.Context) error {
	return w.shared.Conntrack.ScanAll(func() error {
		if err := w.begin(); err != nil {
			return err
		}
		for next := uint32(0); !w.done(); {
			end, err := w.shared.Conntrack.Buckets() // the table may grow meanwhile
			if err != nil || next >= end {
				return err
			}
			if err := w.buckets(ctx, next, end); err != nil {
				return err
			}
			next = end
		}
		return nil
	})
}

// buckets walks through the buckets from the first up to end, until all connections are met.
func (w *walk) buckets(ctx context.Context, first, end uint32) error {
	for next := first; next < end && !w.done(); {
		skb := testrun.SKB{Mark: next}
		skb.CB[0] = end - next
		after, err := w.programs.run(walkRows, &ebpf.RunOptions{Data: testrun.EmptyFrame(), Context: skb})
		if err != nil {
			return fmt.Errorf("walk through connections: %w", err)
		}
		if after == next {
			return nil // the table has no such bucket
		}
		if err := errors.Join(w.readFound(), w.programs.walkMet.Get(&w.met)); err != nil {
			return fmt.Errorf("read found connections: %w", err)
		}
		w.slice += after - next
		next = after
		if w.slice >= walkSlice && !w.done() {
			w.slice = 0
			if err := yieldCPU(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// readFound reads the results of a slice.
func (w *walk) readFound() error {
	var record ringbuf.Record
	for {
		if err := w.programs.found.ReadInto(&record); errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		} else if err != nil {
			return err
		}
		e, err := readEnd(record.RawSample)
		if err != nil {
			return err
		}
		if list := w.found[e.endpoint]; len(list) < w.share {
			w.found[e.endpoint] = append(list, e)
			w.foundTotal++
		}
	}
}

// readEnd reads a record of a ring.
func readEnd(record []byte) (e foundEnd, err error) {
	if len(record) < int(unsafe.Sizeof(e)) {
		return e, fmt.Errorf("a found connection has %d bytes, not %d", len(record), unsafe.Sizeof(e))
	}
	copy((*[unsafe.Sizeof(e)]byte)(unsafe.Pointer(&e))[:], record)
	return e, nil
}

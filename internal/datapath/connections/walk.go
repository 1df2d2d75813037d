package connections

import (
	"context"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"github.com/cilium/ebpf/ringbuf"

	"loxilb/internal/datapath/bpf"
	"loxilb/internal/datapath/tables"
)

// pair are the keys of both entries of a TCP connection.
type pair struct{ client, reply bpf.TcConnectionKey }

// foundEnd is struct found_end of bpf/abi.h.
type foundEnd struct {
	pair
	endpoint, _ uint32
}

// maxFound bounds what a walk brings of an endpoint: 5 MB. The rest is for the next one.
const maxFound = 65536

// walk goes through the connection table until it has met all connections of these endpoints. Those of TCP are returned by endpoint,
// others end on the way.
func (t *Table) walk(ctx context.Context, of []tables.End) (found map[uint32][]pair, err error) {
	var bits [tables.MaxEndpoints / 64]uint64
	var all uint64
	for _, e := range of {
		bits[e.ID/64] |= 1 << (e.ID % 64)
		all += e.Active
	}
	if err := errors.Join(t.programs.EndingEndpoints.Set(bits), t.programs.WalkMet.Set(uint64(0))); err != nil {
		return nil, fmt.Errorf("say whose connections end: %w", err)
	}
	found = make(map[uint32][]pair, len(of))
	for next, met := uint32(0), uint64(0); met < all; {
		buckets, err := t.shared.Conntrack.Buckets() // the table may grow meanwhile
		if err != nil || next >= buckets {
			return found, err
		}
		if next, err = runMarked(t.programs.LoxilbWalk, next); err != nil {
			return found, fmt.Errorf("walk through connections: %w", err)
		}
		if err := errors.Join(t.readFound(found), t.programs.WalkMet.Get(&met)); err != nil {
			return found, fmt.Errorf("read found connections: %w", err)
		}
		if met < all {
			err = rest(ctx)
		}
		if err != nil {
			return found, err
		}
	}
	return found, nil
}

// readFound takes what a slice of a walk has found.
func (t *Table) readFound(found map[uint32][]pair) error {
	var record ringbuf.Record
	for {
		if err := t.programs.found.ReadInto(&record); errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		} else if err != nil {
			return err
		}
		var e foundEnd
		if len(record.RawSample) < int(unsafe.Sizeof(e)) {
			return fmt.Errorf("a found connection has %d bytes, not %d", len(record.RawSample), unsafe.Sizeof(e))
		}
		copy((*[unsafe.Sizeof(e)]byte)(unsafe.Pointer(&e))[:], record.RawSample)
		if list := found[e.endpoint]; len(list) < maxFound {
			found[e.endpoint] = append(list, e.pair)
		}
	}
}

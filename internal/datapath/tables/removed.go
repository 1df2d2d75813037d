package tables

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"loxilb/internal/datapath/rows"
)

// removedEndpointCounters hold what endpoints that are gone have counted for their services, so that a service's sums never go
// back, not over a restart either: a map by service id, pinned beside the others. Packets do not see it, so it is
// not in abi.h. Without pins there is no restart, and no map.
//
// A process that is killed between this map and the endpoint's row counts the endpoint twice: better than never, and
// nothing but that microsecond is inexact.
type removedEndpointCounters struct{ m *ebpf.Map }

// removedRow is counters in the form of the map.
type removedRow struct {
	Connections, PacketsIn, BytesIn, PacketsOut, BytesOut uint64
}

const removedRowBytes = 40

// openRemoved opens the map pinned in dir, or makes it.
func openRemoved(dir string) (removedEndpointCounters, error) {
	spec := &ebpf.MapSpec{
		Name: "removed_counters", Type: ebpf.Hash, KeySize: 4, ValueSize: removedRowBytes, MaxEntries: uint32(MaxServices),
		Flags: unix.BPF_F_NO_PREALLOC, Pinning: ebpf.PinByName,
	}
	m, err := ebpf.NewMapWithOptions(spec, ebpf.MapOptions{PinPath: dir})
	if err != nil {
		return removedEndpointCounters{}, fmt.Errorf("open map of counters of removed endpoints: %w", err)
	}
	return removedEndpointCounters{m}, nil
}

// put stores what the service's removed endpoints have counted.
func (r removedEndpointCounters) put(id uint32, c counters) error {
	if r.m == nil {
		return nil
	}
	if c == (counters{}) {
		if err := r.m.Delete(id); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("drop counters of removed endpoints: %w", err)
		}
		return nil
	}
	row := removedRow{c.connections, c.in.Packets, c.in.Bytes, c.out.Packets, c.out.Bytes}
	if err := r.m.Put(id, row); err != nil {
		return fmt.Errorf("keep counters of removed endpoints: %w", err)
	}
	return nil
}

// each reads all rows.
func (r removedEndpointCounters) each(f func(id uint32, c counters)) error {
	err := rows.EachBatch(r.m, rows.All, func(ids []uint32, rows []removedRow) {
		for i, row := range rows {
			c := counters{connections: row.Connections}
			c.in.Packets, c.in.Bytes, c.out.Packets, c.out.Bytes = row.PacketsIn, row.BytesIn, row.PacketsOut, row.BytesOut
			f(ids[i], c)
		}
	})
	if err != nil {
		return fmt.Errorf("read counters of removed endpoints: %w", err)
	}
	return nil
}

func (r removedEndpointCounters) close() {
	if r.m != nil {
		_ = r.m.Close() // it stays pinned
	}
}

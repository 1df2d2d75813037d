package tables

import (
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/lb/report"
)

// removedCounters hold what endpoints that are gone have counted, for their services and all
// together, so that no sum ever goes back, not over a restart either: a map by service id, pinned
// beside the others. Packets do not see it, so it is not in abi.h. Without pins there is no
// restart, and no map.
//
// A process that is killed between this map and the endpoint's row counts the endpoint twice:
// better than never, and nothing but that microsecond is inexact.
type removedCounters struct{ m *ebpf.Map }

// allRemoved is the row of all endpoints that are gone, whether or not their services are.
const allRemoved = uint32(MaxServices)

// removedRow is counters in the form of the map.
type removedRow struct {
	Connections, PacketsIn, BytesIn, PacketsOut, BytesOut uint64

	Handshakes report.Handshakes
}

// openRemoved opens the map pinned in dir, or makes it.
func openRemoved(dir string) (removedCounters, error) {
	spec := &ebpf.MapSpec{
		Name: "removed_totals", Type: ebpf.Hash, KeySize: 4, ValueSize: uint32(unsafe.Sizeof(removedRow{})), MaxEntries: allRemoved + 1,
		Flags: unix.BPF_F_NO_PREALLOC, Pinning: ebpf.PinByName,
	}
	m, err := ebpf.NewMapWithOptions(spec, ebpf.MapOptions{PinPath: dir})
	if err != nil {
		return removedCounters{}, fmt.Errorf("open map of counters of removed endpoints: %w", err)
	}
	return removedCounters{m}, nil
}

func (r removedRow) counters() counters {
	c := counters{connections: r.Connections, shakes: r.Handshakes}
	c.in.Packets, c.in.Bytes, c.out.Packets, c.out.Bytes = r.PacketsIn, r.BytesIn, r.PacketsOut, r.BytesOut
	return c
}

// put stores the counts of the removed endpoints of a service, or of all.
func (r removedCounters) put(id uint32, c counters) error {
	if r.m == nil {
		return nil
	}
	if c == (counters{}) {
		if err := rows.Delete(r.m, id); err != nil {
			return fmt.Errorf("drop counters of removed endpoints: %w", err)
		}
		return nil
	}
	row := removedRow{c.connections, c.in.Packets, c.in.Bytes, c.out.Packets, c.out.Bytes, c.shakes}
	if err := r.m.Put(id, row); err != nil {
		return fmt.Errorf("keep counters of removed endpoints: %w", err)
	}
	return nil
}

// each reads all rows.
func (r removedCounters) each(f func(id uint32, c counters)) error {
	err := rows.EachBatch(r.m, rows.All, func(ids []uint32, list []removedRow) {
		for i, row := range list {
			f(ids[i], row.counters())
		}
	})
	if err != nil {
		return fmt.Errorf("read counters of removed endpoints: %w", err)
	}
	return nil
}

func (r removedCounters) close() {
	if r.m != nil {
		_ = r.m.Close() // it stays pinned
	}
}

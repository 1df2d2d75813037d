package datapath

import (
	"fmt"

	"github.com/cilium/ebpf"
)

// retired holds what endpoints that are gone have counted for their services, so that a service's sums never go
// back, not over a restart either: an array by service id, pinned beside the others. Packets do not see it, so it is
// not in abi.h. Without pins there is no restart, and no map.
//
// A process that is killed between this map and the endpoint's row counts the endpoint twice: better than never, and
// nothing but that microsecond is inexact.
type retired struct{ m *ebpf.Map }

// retiredRow is counters in the form of the map.
type retiredRow struct {
	Connections, PacketsIn, BytesIn, PacketsOut, BytesOut uint64
}

const retiredRowBytes = 40

// openRetired opens the map pinned in dir, or makes it.
func openRetired(dir string) (retired, error) {
	spec := &ebpf.MapSpec{
		Name: "retired", Type: ebpf.Array, KeySize: 4, ValueSize: retiredRowBytes, MaxEntries: maxServices,
		Pinning: ebpf.PinByName,
	}
	m, err := ebpf.NewMapWithOptions(spec, ebpf.MapOptions{PinPath: dir})
	if err != nil {
		return retired{}, fmt.Errorf("open map of counters of removed endpoints: %w", err)
	}
	return retired{m}, nil
}

// put stores what the service's removed endpoints have counted.
func (r retired) put(id uint32, c counters) error {
	if r.m == nil {
		return nil
	}
	row := retiredRow{c.connections, c.in.Packets, c.in.Bytes, c.out.Packets, c.out.Bytes}
	if err := r.m.Put(id, row); err != nil {
		return fmt.Errorf("keep counters of removed endpoints: %w", err)
	}
	return nil
}

// each reads all rows.
func (r retired) each(f func(id uint32, c counters)) error {
	err := eachBatch(r.m, maxServices, func(ids []uint32, rows []retiredRow) {
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

func (r retired) close() {
	if r.m != nil {
		_ = r.m.Close() // it stays pinned
	}
}

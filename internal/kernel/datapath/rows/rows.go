// Package rows handles rows of the kernel's maps: it reads whole maps, grows arrays (Array),
// allocates rows (IDs, Slots), compares maps with their expected rows (Comparison), and keeps the
// filter of addresses and ports (Filter). It does not know services.
package rows

import (
	"errors"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// IsLast distinguishes the end of a batch lookup from an error.
func IsLast(err error) bool { return errors.Is(err, ebpf.ErrKeyNotExist) }

// All as the limit of EachBatch means all rows.
const All = int(^uint(0) >> 1)

// EachBatch reads a map with a few system calls and calls f with some thousand rows at a time; of
// an array, with the first limit rows. f must not keep them. Concurrent changes may or may not be
// seen.
func EachBatch[K, V any](m *ebpf.Map, limit int, f func([]K, []V)) error {
	batch := min(8192, limit)
	keys, rows := make([]K, batch), make([]V, batch)
	var cursor ebpf.MapBatchCursor
	for limit > 0 {
		batch = min(batch, limit)
		n, err := m.BatchLookup(&cursor, keys[:batch], rows[:batch], nil)
		if errors.Is(err, unix.ENOSPC) { // a bucket of a hash has more entries than fit
			batch *= 2
			keys, rows = make([]K, batch), make([]V, batch)
			continue
		}
		if err != nil && !IsLast(err) {
			return err
		}
		f(keys[:n], rows[:n])
		if err != nil {
			return nil
		}
		limit -= n
	}
	return nil
}

// Each reads a map row by row: for kinds of maps that have no batches.
func Each[K, V any](m *ebpf.Map, f func(K, V)) error {
	var k K
	var v V
	it := m.Iterate()
	for it.Next(&k, &v) {
		f(k, v)
	}
	return it.Err()
}

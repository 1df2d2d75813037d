package datapath

import (
	"errors"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"loxilb/internal/datapath/bpf"
)

// isLast tells the end of a batch lookup from an error.
func isLast(err error) bool { return errors.Is(err, ebpf.ErrKeyNotExist) }

// everything is the limit of eachBatch that is none.
const everything = int(^uint(0) >> 1)

// eachBatch reads a map with a few system calls and calls f with its rows, some thousand at a time; of an array the
// first limit ones. f must not keep them. What changes meanwhile is read as it was or as it is.
func eachBatch[K, V any](m *ebpf.Map, limit int, f func([]K, []V)) error {
	batch := min(8192, limit)
	keys, rows := make([]K, batch), make([]V, batch)
	var cursor ebpf.MapBatchCursor
	for limit > 0 {
		batch = min(batch, limit)
		n, err := m.BatchLookup(&cursor, keys[:batch], rows[:batch], nil)
		if errors.Is(err, unix.ENOSPC) { // a bucket of a hash holds more than that
			batch *= 2
			keys, rows = make([]K, batch), make([]V, batch)
			continue
		}
		if err != nil && !isLast(err) {
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

// eachState reads the connection counts of all endpoints, ending ones included, and of rows that are free.
func (d *Datapath) eachState(f func([]uint32, []bpf.TcEndpointState)) error {
	d.mu.RLock()
	top := int(d.tables.endpointIDs.top)
	d.mu.RUnlock()
	return eachBatch(d.obj.EndpointStates, top, f)
}

package loader

import (
	"errors"
	"reflect"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/datapath/rows"
)

// A count of a large hash is kept for keptTimes as long as it took, and at most for maxKept: a
// million rows take 0.5 s of CPU time, which each scrape of metrics would cost. Counts that took
// less than minKept are not kept.
const (
	keptTimes = 100
	minKept   = 20 * time.Millisecond
	maxKept   = time.Minute
)

// rowCounts counts the rows of hashes.
type rowCounts struct {
	mu   sync.Mutex // held while rows are counted: several readers at once would all pay for it
	kept map[string]rowCount
}

// rowCount is an earlier count of a hash's rows.
type rowCount struct {
	rows  uint64
	until time.Time
}

// of returns the number of rows of the hash with a name, by count if there is no earlier count.
func (r *rowCounts) of(name string, count func() (uint64, error)) (uint64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	began := time.Now()
	if k, ok := r.kept[name]; ok && began.Before(k.until) {
		return k.rows, nil
	}
	n, err := count()
	if took := time.Since(began); err == nil && took >= minKept {
		if r.kept == nil {
			r.kept = map[string]rowCount{}
		}
		r.kept[name] = rowCount{n, time.Now().Add(min(keptTimes*took, maxKept))}
	}
	return n, err
}

// ForgetRowCounts makes MapUses count all rows again, for tests.
func (c *Collection) ForgetRowCounts() {
	c.rowCounts.mu.Lock()
	defer c.rowCounts.mu.Unlock()
	clear(c.rowCounts.kept)
}

// countRows reads a hash, whatever its keys and values are.
func countRows(m *ebpf.Map) (n uint64, err error) {
	const batch = 4096
	bytes := func(size uint32) reflect.Type {
		return reflect.SliceOf(reflect.ArrayOf(int(size), reflect.TypeFor[byte]()))
	}
	keyType, valueType := bytes(m.KeySize()), bytes(m.ValueSize())
	var cursor ebpf.MapBatchCursor
	for size := batch; err == nil; {
		keys, values := reflect.MakeSlice(keyType, size, size), reflect.MakeSlice(valueType, size, size)
		for err == nil {
			var read int
			read, err = m.BatchLookup(&cursor, keys.Interface(), values.Interface(), nil)
			n += uint64(read)
		}
		if errors.Is(err, unix.ENOSPC) { // a bucket has more rows than fit
			err = nil
			size *= 2
		}
	}
	if rows.IsLast(err) {
		err = nil
	}
	return n, err
}

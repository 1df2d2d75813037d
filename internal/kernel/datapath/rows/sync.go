package rows

import (
	"errors"

	"github.com/cilium/ebpf"
)

// Sync changes a map's rows from have, its current rows, to want, and updates have. Where a change
// fails, have keeps the current row, so the next call retries. changed reports whether rows were
// added or removed.
func Sync[K, V comparable](m *ebpf.Map, have, want map[K]V) (changed bool, err error) {
	var errs []error
	for k, row := range want {
		old, had := have[k]
		if had && old == row {
			continue
		}
		if err := m.Put(k, row); err != nil {
			errs = append(errs, err)
			continue
		}
		have[k] = row
		changed = changed || !had
	}
	for k := range have {
		if _, wanted := want[k]; wanted {
			continue
		}
		if err := Delete(m, k); err != nil {
			errs = append(errs, err)
			continue
		}
		delete(have, k)
		changed = true
	}
	return changed, errors.Join(errs...)
}

// Delete removes a row, if the map has it.
func Delete[K any](m *ebpf.Map, key K) error {
	if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	return nil
}

// Read returns all rows of a map.
func Read[K comparable, V any](m *ebpf.Map) (map[K]V, error) {
	all := map[K]V{}
	return all, Each(m, func(k K, v V) { all[k] = v })
}

package conntrack

import (
	"context"
	"fmt"

	"github.com/cilium/ebpf"

	"loxilb/internal/datapath/bpf"
	"loxilb/internal/datapath/rows"
)

// Each calls yield for each entry until it returns false. The table goes on changing meanwhile: an entry that lives
// throughout is shown, perhaps twice while the table grows; others may or may not be.
func (t *Table) Each(ctx context.Context, yield func(bpf.TcConnectionKey, bpf.TcConnection) bool) error {
	keys := make([]uint32, perGroup)
	buckets := make([]bpf.TcTableBucket, perGroup)
	for i := 0; i < len(t.groups.Segments()); i++ { // entries move to groups that come later
		var cursor ebpf.MapBatchCursor
		n, err := t.groups.Segments()[i].BatchLookup(&cursor, keys, buckets, nil)
		if err != nil && !rows.IsLast(err) {
			return fmt.Errorf("read connections: %w", err)
		}
		for b := range buckets[:n] {
			if !eachRow(&buckets[b], yield) {
				return nil
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

func eachRow(b *bpf.TcTableBucket, yield func(bpf.TcConnectionKey, bpf.TcConnection) bool) bool {
	for i := range b.Rows {
		if r := &b.Rows[i]; r.Status&rowLive != 0 && !yield(r.Key, r.Connection) {
			return false
		}
	}
	return true
}

// Change has edit change entries, of which it returns those that it wants to be written. For tests and measurements: a
// packet that counts in the same bucket at that moment may be forgotten.
func (t *Table) Change(edit func(bpf.TcConnectionKey, *bpf.TcConnection) bool) error {
	for _, group := range t.groups.Segments() {
		for number := range perGroup {
			var b bpf.TcTableBucket
			if err := group.Lookup(number, &b); err != nil {
				return fmt.Errorf("read connections: %w", err)
			}
			changed := false
			for i := range b.Rows {
				if r := &b.Rows[i]; r.Status&rowLive != 0 && edit(r.Key, &r.Connection) {
					changed = true
				}
			}
			if !changed {
				continue
			}
			if err := group.Put(number, &b); err != nil {
				return fmt.Errorf("write connections: %w", err)
			}
		}
	}
	return nil
}

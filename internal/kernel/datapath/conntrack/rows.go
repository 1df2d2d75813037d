package conntrack

import (
	"context"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
)

// Each calls yield for each entry until it returns false. The table changes meanwhile: an entry
// that lives throughout is yielded, perhaps twice while the table grows; others may or may not be.
// ScanAll repeats a scan that must not miss an entry whose new group is full.
func (t *Table) Each(ctx context.Context, yield func(bpf.TcConnectionKey, bpf.TcConnection) bool) error {
	_, err := t.EachFrom(ctx, 0, yield)
	return err
}

// ScanAll runs scan, which visits groups in order, and repeats it if growth has moved entries to
// earlier groups meanwhile, as it does if their new group is full (row_copy_home() of
// bpf/table/grow.h).
func (t *Table) ScanAll(scan func() error) error {
	for {
		before, err := t.read()
		if err != nil {
			return err
		}
		if err := scan(); err != nil {
			return err
		}
		after, err := t.read()
		if err != nil || after.MovedBack == before.MovedBack {
			return err
		}
	}
}

// EachFrom is Each from a group on, and returns the group where it stopped, to continue there; 0:
// the end.
func (t *Table) EachFrom(ctx context.Context, group int, yield func(bpf.TcConnectionKey, bpf.TcConnection) bool) (next int, err error) {
	next, _, err = t.each(ctx, group, 0, func(r *bpf.TcTableRow) bool { return yield(r.Key, r.Connection) })
	return next, err
}

// EachRowFrom yields the rows of entries from a row on, until yield returns false. A row is valid
// until yield returns. The result is the row where it stopped, to begin with it again; 0: the end.
func (t *Table) EachRowFrom(ctx context.Context, row int, yield func(*bpf.TcTableRow) bool) (next int, err error) {
	group, row, err := t.each(ctx, row/int(rowsPerGroup), row%int(rowsPerGroup), yield)
	return group*int(rowsPerGroup) + row, err
}

// each is EachRowFrom from a row of a group on. It returns the group and the row where it stopped.
func (t *Table) each(ctx context.Context, group, skip int, yield func(*bpf.TcTableRow) bool) (next, row int, err error) {
	keys := make([]uint32, perGroup)
	buckets := make([]element, perGroup)
	for i, groups := group, 0; ; i++ {
		if i >= groups { // entries move to later groups
			s, err := t.read()
			if err != nil {
				return i, 0, err
			}
			if groups = s.inUse(); i >= groups {
				return 0, 0, nil
			}
		}
		n, err := t.readGroup(i, keys, buckets)
		if err != nil {
			return i, 0, fmt.Errorf("read connections: %w", err)
		}
		const perBucket = int(rowsPerBucket)
		for row := skip; row < n*perBucket; row++ {
			r := &bucketIn(&buckets[row/perBucket]).Rows[row%perBucket]
			if r.Status&rowLive != 0 && !yield(r) {
				return i, row, nil
			}
		}
		skip = 0
		if err := ctx.Err(); err != nil {
			return i + 1, 0, err
		}
	}
}

// readGroup reads the buckets of a group.
func (t *Table) readGroup(i int, keys []uint32, buckets []element) (n int, err error) {
	group, err := t.groups.Open(i)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, rows.Close(group)) }()
	var cursor ebpf.MapBatchCursor
	n, err = group.BatchLookup(&cursor, keys, buckets, nil)
	if rows.IsLast(err) {
		err = nil
	}
	return n, err
}

// Began returns the packet path's clock at the start of a row's connection. known is false if the
// row does not have it.
func Began(r *bpf.TcTableRow) (ticks uint64, known bool) {
	ticks = r.Status &^ (rowLive | rowPlaced)
	return ticks, ticks != 0
}

func eachRow(b *bpf.TcTableBucket, yield func(bpf.TcConnectionKey, bpf.TcConnection) bool) {
	for i := range b.Rows {
		if r := &b.Rows[i]; r.Status&rowLive != 0 && !yield(r.Key, r.Connection) {
			return
		}
	}
}

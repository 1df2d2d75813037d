package conntrack

import (
	"errors"
	"fmt"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
)

// EditBuckets writes the buckets for which edit returns true. It is for tests and measurements:
// concurrent changes by packets in the same bucket may be lost.
func (t *Table) EditBuckets(edit func(group, bucket int, b *bpf.TcTableBucket) bool) error {
	for i := range t.groups.Count() {
		if err := t.editGroup(i, edit); err != nil {
			return fmt.Errorf("edit connections: %w", err)
		}
	}
	return nil
}

func (t *Table) editGroup(i int, edit func(group, bucket int, b *bpf.TcTableBucket) bool) (err error) {
	group, err := t.groups.Open(i)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close(group)) }()
	for number := range perGroup {
		var e element
		if err := group.Lookup(number, &e); err != nil {
			return err
		}
		if !edit(i, int(number), bucketIn(&e)) {
			continue
		}
		if err := group.Put(number, &e); err != nil {
			return err
		}
	}
	return nil
}

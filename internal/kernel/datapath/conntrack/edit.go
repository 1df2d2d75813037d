package conntrack

import (
	"errors"
	"fmt"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
)

// Change writes the entries for which edit returns true. For tests and measurements: counts of a
// packet in the same bucket at that moment may be lost.
func (t *Table) Change(edit func(bpf.TcConnectionKey, *bpf.TcConnection) bool) error {
	return t.changeRows(func(row *bpf.TcTableRow) bool { return edit(row.Key, &row.Connection) })
}

// Age makes all connections begin, and be last used, so many jiffies earlier. For tests, as Change.
func (t *Table) Age(jiffies uint32) error {
	return t.changeRows(func(row *bpf.TcTableRow) bool {
		row.Connection.Seen -= jiffies
		if row.Status&^rowLive > uint64(jiffies) {
			row.Status -= uint64(jiffies)
		}
		return true
	})
}

func (t *Table) changeRows(edit func(*bpf.TcTableRow) bool) error {
	s, err := t.read()
	if err != nil {
		return err
	}
	for i := range s.inUse() {
		err := t.editGroup(i, func(_ int, b *bpf.TcTableBucket) (changed bool) {
			for r := range b.Rows {
				if row := &b.Rows[r]; row.Status&rowLive != 0 && edit(row) {
					changed = true
				}
			}
			return changed
		})
		if err != nil {
			return fmt.Errorf("change connections: %w", err)
		}
	}
	return nil
}

// Hold takes the locks of the chosen buckets, or releases them, like a program that holds them for
// long. For tests, as Change.
func (t *Table) Hold(on bool, choose func(group, bucket int, keys []bpf.TcConnectionKey) bool) error {
	for i := range t.groups.Count() {
		err := t.editGroup(i, func(number int, b *bpf.TcTableBucket) bool {
			if !choose(i, number, keysIn(b)) {
				return false
			}
			control := &b.Tags[len(b.Tags)-1]
			if on {
				*control |= locked
			} else {
				*control &^= locked
			}
			return true
		})
		if err != nil {
			return fmt.Errorf("hold locks: %w", err)
		}
	}
	return nil
}

// Crowd takes the free rows of a group, so it has room for no entry, or releases them. For tests,
// as Change.
func (t *Table) Crowd(on bool, group int) error {
	err := t.editGroup(group, func(_ int, b *bpf.TcTableBucket) bool {
		for r := range b.Rows {
			word, shift := &b.Tags[uint32(r)/tagsPerWord], uint32(r)%tagsPerWord*tagBits
			const mask = 1<<tagBits - 1
			switch {
			case on && *word>>shift&mask == 0:
				*word |= mask << shift
			case !on && b.Rows[r].Status&rowLive == 0:
				*word &^= mask << shift
			}
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("crowd a group: %w", err)
	}
	return nil
}

func keysIn(b *bpf.TcTableBucket) (keys []bpf.TcConnectionKey) {
	eachRow(b, func(k bpf.TcConnectionKey, _ bpf.TcConnection) bool {
		keys = append(keys, k)
		return true
	})
	return keys
}

// editGroup writes the buckets of a group for which edit returns true.
func (t *Table) editGroup(i int, edit func(number int, b *bpf.TcTableBucket) bool) (err error) {
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
		if !edit(int(number), bucketIn(&e)) {
			continue
		}
		if err := group.Put(number, &e); err != nil {
			return err
		}
	}
	return nil
}

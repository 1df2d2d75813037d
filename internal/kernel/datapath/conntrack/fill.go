package conntrack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
)

// Entry is one direction of a connection.
type Entry struct {
	Key bpf.TcConnectionKey
	Row bpf.TcConnection
}

// Fill rewrites the table with these entries in addition to its own: for tests and measurements,
// while no packet uses it and it does not grow. Entries replace those with the same key.
func (t *Table) Fill(entries []Entry) error {
	return t.rewrite(func(had []Entry) []Entry {
		is := make(map[bpf.TcConnectionKey]int, len(had))
		for i, e := range had {
			is[e.Key] = i
		}
		for _, e := range entries {
			if i, ok := is[e.Key]; ok && len(had) > 0 {
				had[i] = e
			} else {
				had = append(had, e)
			}
		}
		return had
	})
}

// Remove rewrites the table without these entries; for tests, as Fill.
func (t *Table) Remove(keys ...bpf.TcConnectionKey) error {
	return t.rewrite(func(had []Entry) []Entry {
		return slices.DeleteFunc(had, func(e Entry) bool { return slices.Contains(keys, e.Key) })
	})
}

func (t *Table) rewrite(edit func([]Entry) []Entry) error {
	var had []Entry
	err := t.Each(context.Background(), func(k bpf.TcConnectionKey, c bpf.TcConnection) bool {
		had = append(had, Entry{k, c})
		return true
	})
	if err != nil {
		return err
	}
	return t.write(edit(had))
}

// write replaces all entries.
func (t *Table) write(entries []Entry) error {
	s, err := t.read()
	if err != nil {
		return err
	}
	groups := targetGroups(uint32(s.inUse()), uint64(len(entries)), uint32(t.groups.MaxSegments()))
	if err := t.Extend(groups); err != nil {
		return err
	}
	if err := t.writeHomes(s, entries, groups); err != nil {
		return err
	}
	s.Size, s.Entries = pack(groups), int64(len(entries))
	if err := t.state.Put(uint32(0), (*bpf.TcTableState)(s)); err != nil {
		return fmt.Errorf("count connections: %w", err)
	}
	return t.clearCounts()
}

// A place is the group of an entry.
type place struct {
	home
	group uint32
	entry int
}

// writeHomes writes groups with only these entries.
func (t *Table) writeHomes(s *state, entries []Entry, groups uint32) error {
	places := make([]place, len(entries))
	for i := range entries {
		h := s.homes(&entries[i].Key)[0]
		places[i] = place{h, groupOf(h.hash, groups), i}
	}
	slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.group, b.group) })
	var away []int // entries without room at their first home
	for group := range groups {
		buckets := make([]element, perGroup)
		for ; len(places) > 0 && places[0].group == group; places = places[1:] {
			if p := &places[0]; !put(buckets, p.home, &entries[p.entry], false) {
				away = append(away, p.entry)
			}
		}
		if err := t.writeGroup(group, buckets); err != nil {
			return fmt.Errorf("write connections: %w", err)
		}
	}
	for _, i := range away {
		if err := t.putAway(s, &entries[i], groups); err != nil {
			return err
		}
	}
	return nil
}

// putAway adds an entry at its second home.
func (t *Table) putAway(s *state, e *Entry, groups uint32) error {
	homes := s.homes(&e.Key)
	h := homes[len(homes)-1]
	group := groupOf(h.hash, groups)
	buckets := make([]element, perGroup)
	if _, err := t.readGroup(int(group), make([]uint32, perGroup), buckets); err != nil {
		return fmt.Errorf("read connections: %w", err)
	}
	if !put(buckets, h, e, true) {
		return fmt.Errorf("fill connections: group %d of %d is full", group, groups)
	}
	if err := t.writeGroup(group, buckets); err != nil {
		return fmt.Errorf("write connections: %w", err)
	}
	return nil
}

func (t *Table) writeGroup(number uint32, buckets []element) (err error) {
	group, err := t.groups.Open(int(number))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close(group)) }()
	for i := range buckets {
		if err := group.Put(uint32(i), &buckets[i]); err != nil {
			return err
		}
	}
	return nil
}

func (t *Table) clearCounts() error {
	var own []int64
	if err := t.counts.Lookup(uint32(0), &own); err != nil {
		return fmt.Errorf("count connections: %w", err)
	}
	clear(own)
	if err := t.counts.Put(uint32(0), own); err != nil {
		return fmt.Errorf("count connections: %w", err)
	}
	return nil
}

// put writes an entry into its bucket, or another bucket of the group. If the group has no room,
// the bucket's keys go to their second home. At its last home, an entry takes any room, as in
// entry_insert_at() of bpf/table/table_write.h.
func put(buckets []element, h home, e *Entry, isLast bool) bool {
	own := bucketOf(h.hash)
	control := &bucketIn(&buckets[own]).Tags[bpf.TcTableLayoutTAG_WORDS-1]
	row := bpf.TcTableRow{
		Key: e.Key, Status: rowLive | uint64(h.placed)<<bpf.TcTableLayoutROW_PLACED_SHIFT, Connection: e.Row,
	}
	for n := uint32(0); n < perGroup && (n > 0 || isLast || bucketTakes(*control, h.placed)); n++ {
		if !putInBucket(bucketIn(&buckets[own^n]), h.hash, row) {
			continue
		}
		if n > 0 {
			*control += spilledOne
		}
		return true
	}
	if !isLast {
		*control |= away | awaySeen
	}
	return false
}

// bucketTakes is bucket_takes() of bpf/table/table_write.h.
func bucketTakes(control uint64, placed bpf.TcPlacement) bool {
	return placed != bpf.TcPlacementBY_CLIENT || control&spilled < uint64(bpf.TcTableLayoutSPILLED_MAX)*spilledOne
}

// putInBucket writes a row into a free place of a bucket.
func putInBucket(b *bpf.TcTableBucket, h uint64, row bpf.TcTableRow) bool {
	i, ok := freeRow(b, h)
	if ok {
		b.Rows[i] = row
		b.Tags[i/tagsPerWord] |= tag(h) << (i % tagsPerWord * tagBits)
	}
	return ok
}

// freeRow returns the home row of a key or, as pair_insert() of bpf/table/pair.h, the same side of
// the next pairs, so both directions of a connection meet in a pair; without one, any free row.
func freeRow(b *bpf.TcTableBucket, h uint64) (row uint32, ok bool) {
	for n := range rowsPerBucket {
		row = (homeOf(h) + 2*n) % rowsPerBucket
		if n >= rowsPerBucket/2 {
			row ^= hashRow
		}
		if b.Rows[row].Status&rowLive == 0 {
			return row, true
		}
	}
	return 0, false
}

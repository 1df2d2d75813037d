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
// while no packet uses it. Entries replace those with the same key.
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

// write makes these the only entries.
func (t *Table) write(entries []Entry) error {
	s, err := t.read()
	if err != nil {
		return err
	}
	groups := targetGroups(s.groups(), uint64(len(entries)), uint32(t.groups.MaxSegments()))
	if err := t.Extend(groups); err != nil {
		return err
	}
	type place struct {
		hash  uint64
		group uint32
		entry int
	}
	places := make([]place, len(entries))
	for i := range entries {
		h := hash(&s.Seeds, &entries[i].Key)
		places[i] = place{h, groupOf(h, groups), i}
	}
	slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.group, b.group) })
	for group := range groups {
		buckets := make([]element, perGroup)
		for ; len(places) > 0 && places[0].group == group; places = places[1:] {
			if !put(buckets, places[0].hash, &entries[places[0].entry]) {
				return fmt.Errorf("fill connections: group %d of %d is full", group, groups)
			}
		}
		if err := t.writeGroup(group, buckets); err != nil {
			return fmt.Errorf("write connections: %w", err)
		}
	}
	s.Size, s.Entries = pack(groups), int64(len(entries))
	if err := t.state.Put(uint32(0), (*bpf.TcTableState)(s)); err != nil {
		return fmt.Errorf("count connections: %w", err)
	}
	return t.clearCounts()
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

// put writes an entry into its bucket, or another one of the group.
func put(buckets []element, h uint64, e *Entry) bool {
	own := bucketOf(h)
	for n := range perGroup {
		b := bucketIn(&buckets[own^n])
		for r := range rowsPerBucket {
			i := (homeOf(h) + r) % rowsPerBucket
			if b.Rows[i].Status&rowLive != 0 {
				continue
			}
			b.Rows[i] = bpf.TcTableRow{Key: e.Key, Status: rowLive, Connection: e.Row}
			b.Tags[i/tagsPerWord] |= tag(h) << (i % tagsPerWord * tagBits)
			if n > 0 {
				bucketIn(&buckets[own]).Tags[len(b.Tags)-1] += spilledOne
			}
			return true
		}
	}
	return false
}

package store

import (
	"encoding/json"
	"fmt"
	"iter"
	"slices"
)

// Snapshot is the state at one revision. It is immutable, and shares unchanged parts with its
// neighbours.
type Snapshot struct {
	*layout
	revision uint64
	data     data
	counts   []count // of tables and of kept records
}

// layout is common to all snapshots of a store.
type layout struct {
	tables               []AnyTable
	names                []string // of tables and of kept records
	bareKind, bareMember string   // of the kind with Kind.Bare
	urgent               []string // kinds with Kind.Urgent
	shared               []bool   // tables with Kind.Shared, by place
}

// count is the data about a table that needs no walk.
type count struct {
	rows   int
	totals []int
}

func emptySnapshot(tables []AnyTable) (*Snapshot, error) {
	s := &Snapshot{layout: &layout{tables: tables}, data: newData(tables)}
	for place, t := range tables {
		if err := t.attach(place); err != nil {
			return nil, err
		}
		a := t.about()
		if slices.Contains(s.names, a.name) {
			return nil, fmt.Errorf("kind %s is given twice", a.name)
		}
		if a.bare != "" {
			s.bareKind, s.bareMember = a.name, a.bare
		}
		if a.urgent {
			s.urgent = append(s.urgent, a.name)
		}
		s.names, s.shared = append(s.names, a.name), append(s.shared, a.shared)
		s.counts = append(s.counts, count{totals: make([]int, a.totals)})
	}
	s.names = append(s.names, keptTable)
	s.counts = append(s.counts, count{})
	return s, nil
}

// Revision counts the commits that changed something, over restarts too.
func (s *Snapshot) Revision() uint64 { return s.revision }

// Meta returns the owner of an object of any kind, and its version.
func (s *Snapshot) Meta(id ID) (Meta, bool) { return metaOf(find(s, s, id)) }

// find returns the row of an object, or its kept record; s has the tables of v.
func find(s *Snapshot, v View, id ID) row {
	for place, t := range s.tables {
		if s.names[place] != id.Kind {
			continue
		}
		if sort, ok := t.sortOf(id.Key); ok {
			if r := v.row(place, sort); r != nil {
				return r
			}
		}
	}
	return v.row(len(s.tables), keptSort(id))
}

func (s *Snapshot) row(place int, sort string) row {
	return s.data.get(place, sort)
}

func (s *Snapshot) rows(place, index int, prefix string) iter.Seq[row] {
	return rowsOf(s.data[place][index], prefix)
}

func (s *Snapshot) first(place int, prefix string) row {
	return firstRow(s.data[place][sortIndex], prefix)
}

func (s *Snapshot) cloneCounts() []count {
	counts := slices.Clone(s.counts)
	for i := range counts {
		counts[i].totals = slices.Clone(counts[i].totals)
	}
	return counts
}

// keptTable is the table of kept records; no kind has this name.
const keptTable = "kept records"

// Unknown is a record that this loxilb does not understand: of a later kind or format, or with a
// later member. It is kept unchanged, written again with every snapshot, and not served, until its
// owner puts or deletes an object with its kind and key.
type Unknown struct {
	ID
	Meta
	Format int
	Object json.RawMessage // unchanged
	Reason string          // why it is not understood
}

type keptRow struct {
	rowHeader
	ID
	format int
	object []byte
	reason string
}

func keptSort(id ID) string { return id.Kind + "\x00" + id.Key }

// Unknown yields the records that are not understood, in order of kind and key.
func (s *Snapshot) Unknown() iter.Seq[Unknown] {
	return func(yield func(Unknown) bool) {
		for r := range s.rows(len(s.tables), sortIndex, "") {
			k := r.(*keptRow)
			if !yield(Unknown{k.ID, k.Meta, k.format, k.object, k.reason}) {
				return
			}
		}
	}
}

// UnknownLen returns the number of objects that Unknown yields.
func (s *Snapshot) UnknownLen() int { return s.counts[len(s.tables)].rows }

package store

import (
	"encoding/json"
	"fmt"
	"iter"
	"slices"
)

// Snapshot is the state at one revision. It is immutable, and shares memory with the snapshots of
// other revisions.
type Snapshot struct {
	*layout
	revision uint64
	data     data
	counts   []count // of each table, and of the unknown records
}

// layout is the part that all snapshots of a store have in common. Tables are numbered by their
// index in tables; the number after the last one stands for the unknown records.
type layout struct {
	tables               []AnyTable
	names                []string // of each table, and of the unknown records
	bareKind, bareMember string   // name and Kind.Bare of the kind with Kind.Bare
	urgent               []string // kinds with Kind.Urgent
	shared               []bool   // by table: Kind.Shared
}

// count has the number of rows of a table, and the sums of Kind.Totals.
type count struct {
	rows   int
	totals []int
}

func emptySnapshot(tables []AnyTable) (*Snapshot, error) {
	s := &Snapshot{layout: &layout{tables: tables}, data: newData(tables)}
	for table, t := range tables {
		if err := t.attach(table); err != nil {
			return nil, err
		}
		a := t.info()
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
	s.names = append(s.names, unknownName)
	s.counts = append(s.counts, count{})
	return s, nil
}

// Revision returns the number of the state. It counts the commits that changed something, across
// restarts.
func (s *Snapshot) Revision() uint64 { return s.revision }

// Meta returns the owner and version of an object of any kind; false: it does not exist.
func (s *Snapshot) Meta(id ID) (Meta, bool) { return metaOf(find(s, s, id)) }

// find returns the row or the unknown record of an object in v, or nil. s has the tables of v.
func find(s *Snapshot, v View, id ID) row {
	for table, t := range s.tables {
		if s.names[table] != id.Kind {
			continue
		}
		if sortKey, ok := t.sortKeyOf(id.Key); ok {
			if r := v.row(table, sortKey); r != nil {
				return r
			}
		}
	}
	return v.row(s.unknownTable(), unknownSortKey(id))
}

func (s *Snapshot) row(table int, sortKey string) row {
	return s.data.get(table, sortKey)
}

func (s *Snapshot) rows(table, index int, prefix string) iter.Seq[row] {
	return rowsOf(s.data[table][index], prefix)
}

func (s *Snapshot) first(table int, prefix string) row {
	return firstRow(s.data[table][primaryIndex], prefix)
}

func (s *Snapshot) cloneCounts() []count {
	counts := slices.Clone(s.counts)
	for i := range counts {
		counts[i].totals = slices.Clone(counts[i].totals)
	}
	return counts
}

// unknownName is the name of the table of unknown records. No kind has this name.
const unknownName = "unknown records"

// unknownTable returns the number of the table of unknown records.
func (l *layout) unknownTable() int { return len(l.tables) }

// idOf returns the ID of a row's object.
func (l *layout) idOf(p tableRow) ID {
	if u, ok := p.row.(*unknownRow); ok {
		return u.ID
	}
	return ID{l.names[p.table], l.tables[p.table].keyOf(p.row)}
}

// Unknown is a record that this loxilb does not understand, as its kind, format or a member is
// newer. The store keeps it unchanged, writes it with every snapshot, and does not serve it, until
// its owner puts or deletes an object with its kind and key.
type Unknown struct {
	ID
	Meta
	Format int
	Object json.RawMessage // unchanged
	Reason string          // why it is not understood
}

type unknownRow struct {
	rowHeader
	ID
	format int
	object []byte
	reason string
}

func unknownSortKey(id ID) string { return id.Kind + "\x00" + id.Key }

// Unknown yields the unknown records, ordered by kind and key.
func (s *Snapshot) Unknown() iter.Seq[Unknown] {
	return func(yield func(Unknown) bool) {
		for r := range s.rows(s.unknownTable(), primaryIndex, "") {
			k := r.(*unknownRow)
			if !yield(Unknown{k.ID, k.Meta, k.format, k.object, k.reason}) {
				return
			}
		}
	}
}

// UnknownLen returns the number of unknown records.
func (s *Snapshot) UnknownLen() int { return s.counts[s.unknownTable()].rows }

package store

import (
	"iter"
	"slices"

	"github.com/hashicorp/go-memdb"
)

// Snapshot is the state at one revision. It is immutable, and shares what did not change with its neighbours.
type Snapshot struct {
	*layout
	revision uint64
	db       *memdb.MemDB
	reader   *memdb.Txn // for any number of readers
	counts   []count    // of tables, and of what is kept
}

// layout is what all snapshots of a store have.
type layout struct {
	tables               []AnyTable
	names                []string // of tables, and of what is kept
	bareKind, bareMember string   // of the kind with Kind.Bare
}

// count is what is known of a table without walking it.
type count struct {
	rows   int
	totals []int
}

func emptySnapshot(tables []AnyTable) (*Snapshot, error) {
	db, err := newDB(tables)
	if err != nil {
		return nil, err
	}
	db = db.Snapshot() // which does not tell memdb's own watchers: there are none
	s := &Snapshot{layout: &layout{tables: tables}, db: db, reader: db.Txn(false)}
	for _, t := range tables {
		schema := t.schema()
		if schema.bare != "" {
			s.bareKind, s.bareMember = schema.name, schema.bare
		}
		s.names = append(s.names, schema.name)
		s.counts = append(s.counts, count{totals: make([]int, schema.totals)})
	}
	s.names = append(s.names, keptTable)
	s.counts = append(s.counts, count{})
	return s, nil
}

// Revision counts the commits that changed something, over restarts too.
func (s *Snapshot) Revision() uint64 { return s.revision }

// Meta is who wrote an object of any kind, and its version.
func (s *Snapshot) Meta(id ID) (Meta, bool) { return metaOf(find(s, s, id)) }

// find returns the row of an object, or what is kept of it; s has the tables of v.
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
	if s.counts[place].rows == 0 {
		return nil
	}
	return firstRow(s.reader, s.names[place], idIndex, sort)
}

func (s *Snapshot) rows(table, index, prefix string) iter.Seq[row] {
	return rowsOf(s.reader, table, index, prefix)
}

func (s *Snapshot) first(table, index, prefix string) row {
	return firstRow(s.reader, table, index+"_prefix", prefix)
}

func (s *Snapshot) cloneCounts() []count {
	counts := slices.Clone(s.counts)
	for i := range counts {
		counts[i].totals = slices.Clone(counts[i].totals)
	}
	return counts
}

// The names of tables and indexes are our own, so memdb's only errors are faults of this code.

func firstRow(txn *memdb.Txn, table, index, arg string) row {
	r, err := txn.First(table, index, arg)
	if err != nil {
		panic(err)
	}
	if r == nil {
		return nil
	}
	return r.(row)
}

func rowsOf(txn *memdb.Txn, table, index, prefix string) iter.Seq[row] {
	return func(yield func(row) bool) {
		rows, err := txn.Get(table, index+"_prefix", prefix)
		if err != nil {
			panic(err)
		}
		for r := rows.Next(); r != nil; r = rows.Next() {
			if !yield(r.(row)) {
				return
			}
		}
	}
}

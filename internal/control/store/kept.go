package store

import (
	"encoding/json"
	"iter"
)

// keptTable is the table of kept records; no kind has this name.
const keptTable = "kept records"

// Unknown is a record that this loxilb does not understand: of a later kind or format, or with a
// later member. It is kept unchanged, written again with every snapshot, and not served, until its
// owner puts or deletes an object with its kind and key.
type Unknown struct {
	ID
	Meta
	Format int
	Object json.RawMessage // as it was read
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

// UnknownLen is how many Unknown yields.
func (s *Snapshot) UnknownLen() int { return s.counts[len(s.tables)].rows }
